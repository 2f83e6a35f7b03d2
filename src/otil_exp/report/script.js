"use strict";

// Tables: a heading's button sorts by its column; what is missing stays at the end either way.
const compare = (a, b) => (isNaN(a) || isNaN(b) ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
    const down = heading.getAttribute("aria-sort") === "ascending";
    headings.forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[column].dataset.value;
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      return compare(x, y) * (down ? -1 : 1);
    });
    table.tBodies[0].append(...rows);
  }));
}
document.getElementById("all-columns").addEventListener("change", (event) =>
  document.querySelector("table.sortable").classList.toggle("all-columns", event.target.checked));

// Which runs' pictures are shown.
for (const box of document.querySelectorAll(".show-run")) {
  box.addEventListener("change", () => {
    for (const figure of document.querySelectorAll(`figure[data-run="${box.value}"]`)) figure.hidden = !box.checked;
  });
}

// How pictures are shown; a browser may restore a form's state on reload, so it is read once at the start.
const toolbar = document.querySelector(".toolbar");
const show = () => {
  document.body.classList.toggle("show-difference", toolbar.elements.view.value === "difference");
  for (const name of ["lines", "profiles"]) document.body.classList.toggle(name, toolbar.elements[name].checked);
};
toolbar.addEventListener("change", show);
show();

// The slider: the reference picture, which is in the page once a row, is laid over a picture up to the line.
for (const slider of document.querySelectorAll(".slider")) {
  const frame = slider.parentElement;
  slider.value = 0;
  slider.addEventListener("input", () => {
    const wipe = frame.querySelector(".wipe");
    const figure = slider.closest("figure");
    const reference = figure.parentElement.querySelector(`[data-run="${figure.dataset.reference}"] .own`);
    if (!wipe.style.backgroundImage) wipe.style.backgroundImage = `url("${reference.src}")`;
    frame.style.setProperty("--part", `${slider.value}%`);
    frame.classList.toggle("wiped", slider.value !== "0");
  });
}
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#run-"]');
  if (link) document.querySelector(link.hash).open = true;
});
