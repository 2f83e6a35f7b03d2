"use strict";

// Which runs are shown and in which order: pictures follow the table by two lists of rules, however many there are.
const runsTable = document.querySelector("table.sortable");
const rows = () => [...runsTable.tBodies[0].rows];
const follow = document.head.appendChild(document.createElement("style"));
const applyToPictures = () => {
  const shown = (row) => row.querySelector(".show-run").checked;
  follow.textContent = rows().map((row, place) => {
    const first = row.classList.contains("is-reference") ? 0 : place + 1;
    return `.method[data-run="${row.dataset.run}"]{order:${first}${shown(row) ? "" : ";display:none"}}`;
  }).join("\n");
};

// Tables: a heading's button sorts by its column; what is missing stays at the end either way.
const compare = (a, b) => (isNaN(a) || isNaN(b) ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
const headings = [...runsTable.tHead.rows[0].cells];
headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
  const down = heading.getAttribute("aria-sort") === "ascending";
  headings.forEach((other) => other.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = (row) => row.cells[column].dataset.value;
  const sorted = rows().sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    return compare(x, y) * (down ? -1 : 1);
  });
  runsTable.tBodies[0].append(...sorted);
  applyToPictures();
}));
document.getElementById("all-columns").addEventListener("change", (event) =>
  runsTable.classList.toggle("all-columns", event.target.checked));

// The first reference stays below the head while the others scroll by.
const pinReference = () => {
  runsTable.style.setProperty("--head", `${runsTable.tHead.offsetHeight}px`);
  const reference = runsTable.querySelector("tr.is-reference");
  if (reference) reference.classList.toggle("pinned", rows().length > 8);
};
addEventListener("resize", pinReference);
pinReference();

// Filter: every word typed stands in the run's name, status or number.
const filter = document.getElementById("filter");
const applyFilter = () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let left = 0;
  for (const row of rows()) {
    const text = `${row.dataset.run} ${row.cells[1].dataset.value} ${row.cells[2].dataset.value}`.toLowerCase();
    row.hidden = !row.classList.contains("is-reference") && !words.every((word) => text.includes(word));
    left += !row.hidden;
    for (const other of document.querySelectorAll(`:is(#paired, #walltime) tr[data-run="${row.dataset.run}"]`)) other.hidden = row.hidden;
  }
  document.getElementById("filtered").textContent = words.length ? `${left} of ${rows().length} runs` : "";
};
filter.addEventListener("input", applyFilter);
filter.form.addEventListener("submit", (event) => event.preventDefault());

const showRuns = (wanted) => {
  for (const row of rows()) row.querySelector(".show-run").checked = wanted(row);
  applyToPictures();
};
const isReference = (row) => row.classList.contains("is-reference");
document.getElementById("show-all").addEventListener("click", () => showRuns(() => true));
document.getElementById("show-none").addEventListener("click", () => showRuns(() => false));
document.getElementById("show-filtered").addEventListener("click", () => showRuns((row) => !row.hidden));
for (const button of document.querySelectorAll(".only"))
  button.addEventListener("click", () => showRuns((row) => row.dataset.run === button.value || isReference(row)));
runsTable.addEventListener("change", applyToPictures);
applyFilter();
applyToPictures();

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
    const reference = figure.closest(".row").querySelector(`[data-run="${figure.dataset.reference}"] .own`);
    if (!wipe.style.backgroundImage) wipe.style.backgroundImage = `url("${reference.src}")`;
    frame.style.setProperty("--part", `${slider.value}%`);
    frame.classList.toggle("wiped", slider.value !== "0");
  });
}
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#run-"]');
  if (link) document.querySelector(link.hash).open = true;
});
