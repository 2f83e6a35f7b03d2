"""What a rank knows after an exchange, by real ranks.

The small cases are worked out by hand: a block is one latent pixel of two channels, that is an arrow in the plane, and
its score 1 - cos is a matter of the angle it turned by.
"""

import pytest
import torch
from torch import distributed as dist
from watch import Kernels, NoHostRead, collectives

from otil_exp.choices import Against
from otil_exp.exchange import BlockGrid, LatentExchange, gather
from ranks import run_ranks

SEVEN = 7.0  # what a rank is given in the place of the others' slices: it must never be seen again


def arrows(*slices):
    """Whole latent (1, 2, slices, blocks), each row a slice, each pixel an arrow at the given angle in degrees."""
    angles = torch.tensor(slices, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()]).unsqueeze(0).float()


def degrees(latents):
    """Read the angles of arrows back, a list a slice."""
    return torch.atan2(latents[0, 1], latents[0, 0]).rad2deg().round().int().tolist()


def only_own(latents, rank, rows):
    """What a rank has after a silent scheduler step: its own slice, and nothing useful elsewhere."""
    given = torch.full_like(latents, SEVEN)
    given[:, :, rank * rows : (rank + 1) * rows] = latents[:, :, rank * rows : (rank + 1) * rows]
    return given


def play(rank, whole_latents, k, options=None):
    """Remember the first latent, step through the others; return the angles the rank knows after each step."""
    slices, width = whole_latents[0].shape[2:]
    exchange = LatentExchange(BlockGrid(1, width, 1), rank, slices, k, **(options or {}))
    exchange.remember(whole_latents[0])
    return [degrees(exchange.step(only_own(latents, rank, 1))) for latents in whole_latents[1:]]


@pytest.mark.ranks
def test_two_ranks_exchange_the_block_that_turned_most():
    latents = [
        arrows([0, 0, 0], [90, 90, 90]),
        arrows([10, 40, 20], [95, 100, 120]),  # slice 0 sends its block 1, slice 1 its block 2
        arrows([15, 85, 70], [145, 110, 160]),  # unvisited first: block 2 (50, before 45) and block 0
    ]
    rank0, rank1 = run_ranks(2, play, latents, 1)
    assert rank0 == [[[10, 40, 20], [90, 90, 120]], [[15, 85, 70], [145, 90, 120]]]
    assert rank1 == [[[0, 40, 0], [95, 100, 120]], [[0, 40, 70], [145, 110, 160]]]


@pytest.mark.ranks
def test_four_ranks_each_receive_from_all_others():
    latents = [arrows([0, 0], [0, 0], [0, 0], [0, 0]), arrows([10, 20], [40, 30], [50, 60], [80, 70])]
    known = run_ranks(4, play, latents, 1)
    sent = [[0, 20], [40, 0], [0, 60], [80, 0]]
    for rank, own in enumerate([[10, 20], [40, 30], [50, 60], [80, 70]]):
        assert known[rank] == [[*sent[:rank], own, *sent[rank + 1 :]]]


@pytest.mark.ranks
@pytest.mark.parametrize(("against", "known"), [(Against.previous_step, [0, 50, 40]), (Against.last_sent, [60, 50, 0])])
def test_a_block_is_compared_with_the_previous_step_or_with_what_was_last_sent(against, known):
    # The blocks of slice 0 turn by 30, 50, 0 and then by 30, 20, 40. Block 1 goes first. Then block 2 turned most since
    # the step before, block 0 (60) since it was last known to the others, block 1 (70) only since the beginning.
    latents = [arrows([0, 0, 0], [0, 0, 0]), arrows([30, 50, 0], [0, 0, 1]), arrows([60, 70, 40], [0, 0, 2])]
    _, rank1 = run_ranks(2, play, latents, 1, {"against": against, "polling": False})
    assert [step[0] for step in rank1] == [[0, 50, 0], known]


@pytest.mark.ranks
def test_without_polling_the_same_block_may_be_sent_every_step():
    latents = [arrows([0, 0], [0, 0]), arrows([10, 50], [0, 1]), arrows([20, 100], [0, 2])]
    _, polled = run_ranks(2, play, latents, 1)
    _, unpolled = run_ranks(2, play, latents, 1, {"polling": False})
    assert [step[0] for step in polled] == [[0, 50], [20, 50]]
    assert [step[0] for step in unpolled] == [[0, 50], [0, 100]]


GRID = BlockGrid(rows=8, width=20, block_size=4)  # K = 10
SENT = 3  # k: a round is 4 steps, the last of which fills up with two visited blocks


def exact(step, slices):
    """Whole latent of a step, (1, 4, slices * 8, 20) fp16, every block unlike any other."""
    shape = (1, 4, slices * GRID.rows, GRID.width)
    return torch.randn(shape, generator=torch.Generator().manual_seed(step)).half()


def walk(rank, slices, steps):
    """Step through exact(0), exact(1), ...; return what the rank knew after each step."""
    exchange = LatentExchange(GRID, rank, slices, SENT)
    known = [exact(0, slices)]
    exchange.remember(known[0])
    for step in range(1, steps + 1):
        known.append(exchange.step(only_own(exact(step, slices), rank, GRID.rows)))
    return known


def by_block(latents, slices):
    """Whole latent as (slices, K, elements of a block), without the code under test."""
    tiles = latents.unfold(2, 4, 4).unfold(3, 4, 4)[0]  # (4, 2 * slices, 5, 4, 4)
    return tiles.permute(1, 2, 0, 3, 4).reshape(slices, 10, -1)


@pytest.fixture(scope="module", params=[2, 4], ids=["2 ranks", "4 ranks"])
def walked(request):
    """(slices, what each rank knew after each of two rounds' steps)."""
    return request.param, run_ranks(request.param, walk, request.param, 8)


@pytest.mark.ranks
def test_the_own_slice_is_bit_exact_fresh(walked):
    slices, known = walked
    for rank in range(slices):
        own = slice(rank * GRID.rows, (rank + 1) * GRID.rows)
        for step in range(1, 9):
            assert known[rank][step].dtype == torch.float16
            assert torch.equal(known[rank][step][:, :, own], exact(step, slices)[:, :, own])


@pytest.mark.ranks
def test_a_remote_block_is_received_or_stale_never_a_blend_and_k_come_from_each_peer(walked):
    slices, known = walked
    for rank in range(slices):
        for step in range(1, 9):
            now, before = by_block(known[rank][step], slices), by_block(known[rank][step - 1], slices)
            received = (now == by_block(exact(step, slices), slices)).all(dim=2)
            stale = (now == before).all(dim=2)
            received[rank], stale[rank] = True, False
            assert (received ^ stale).all()
            assert received.sum(dim=1).tolist() == [10 if peer == rank else SENT for peer in range(slices)]


@pytest.mark.ranks
def test_every_remote_block_is_received_within_a_round(walked):
    slices, known = walked
    for rank in range(slices):
        for round_ in (range(1, 5), range(5, 9)):
            received = [
                (by_block(known[rank][step], slices) == by_block(exact(step, slices), slices)).all(dim=2)
                for step in round_
            ]
            assert torch.stack(received).any(dim=0).all()


def synchronise_midway(rank):
    """Step, then a synchronous step, then step again; return what was known after each of the two silent steps."""
    exchange = LatentExchange(GRID, rank, 2, SENT)
    exchange.remember(exact(0, 2))
    known = [exchange.step(only_own(exact(1, 2), rank, GRID.rows))]
    exchange.remember(exact(2, 2))
    known.append(exchange.step(only_own(exact(3, 2), rank, GRID.rows)))
    return known


@pytest.mark.ranks
def test_a_synchronous_step_renews_all_of_memory():
    for rank, (_, known) in enumerate(run_ranks(2, synchronise_midway)):
        now, peer = by_block(known, 2), 1 - rank
        received = (now == by_block(exact(3, 2), 2)).all(dim=2)[peer]
        renewed = (now == by_block(exact(2, 2), 2)).all(dim=2)[peer]
        assert received.sum() == SENT
        assert renewed.sum() == 10 - SENT


@pytest.mark.ranks
def test_a_synchronous_step_begins_a_new_round():
    # Block 1 was sent before the synchronous step; it turns most again, and goes first again.
    latents = [arrows([0, 0, 0], [0, 0, 0]), arrows([1, 50, 2], [0, 0, 0])]
    (_, rank1) = run_ranks(2, play_twice, latents)
    assert rank1 == [[0, 50, 0], [0, 50, 0]]


def play_twice(rank, whole_latents):
    exchange = LatentExchange(BlockGrid(1, 3, 1), rank, 2, 1)
    known = []
    for _ in range(2):
        exchange.remember(whole_latents[0])
        known.append(degrees(exchange.step(only_own(whole_latents[1], rank, 1)))[0])
    return known


def finish(rank, slices):
    exchange = LatentExchange(GRID, rank, slices, SENT)
    with collectives() as called:
        latents = exchange.finalize(only_own(exact(5, slices), rank, GRID.rows))
    return latents, called


@pytest.mark.ranks
@pytest.mark.parametrize("slices", [2, 4])
def test_finalize_is_exact_on_every_rank_by_one_collective(slices):
    for latents, called in run_ranks(slices, finish, slices):
        assert latents.dtype == torch.float16
        assert torch.equal(latents, exact(5, slices))
        assert called == [4 * 8 * 20 * 2]  # the own slice


def count_collectives(rank):
    exchange = LatentExchange(GRID, rank, 2, SENT)
    with collectives() as called:
        exchange.remember(exact(0, 2))
        for step in range(1, 4):
            exchange.step(exact(step, 2))
    return called


@pytest.mark.ranks
def test_a_step_is_two_collectives_the_indices_and_the_blocks():
    indices, blocks = SENT * 8, SENT * 4 * 4 * 4 * 2
    assert run_ranks(2, count_collectives) == [[indices, blocks] * 3] * 2


def kernels_of_a_step(rank):
    exchange = LatentExchange(GRID, rank, 2, SENT)
    before, now = exact(0, 2), exact(1, 2)
    exchange.remember(before)
    with Kernels() as kernels:
        exchange.step(now)
    return kernels.called


@pytest.mark.ranks
def test_a_step_is_no_more_kernels_than_it_was_measured_with():
    # A kernel this small is 2 microseconds of a GPU whatever it does (benchmarks/one_gpu_speed.md).
    for called in run_ranks(2, kernels_of_a_step):
        assert len(called) <= 23, called


def walk_unread(rank, options):
    exchange = LatentExchange(GRID, rank, 2, SENT, **options)
    latents = [exact(step, 2) for step in range(6)]
    with NoHostRead():
        exchange.remember(latents[0])
        for step in range(1, 6):
            exchange.step(latents[step])
        exchange.finalize(latents[5])


@pytest.mark.ranks
@pytest.mark.parametrize("options", [{}, {"against": Against.last_sent}, {"polling": False}], ids=str)
def test_the_host_reads_nothing_from_the_device(options):
    run_ranks(2, walk_unread, options)


def walk_on_one_gpu(rank):
    """Step while the ranks share the first GPU: any wait of the host for the device raises, but for gloo's own."""
    device, all_gather = torch.device("cuda", 0), dist.all_gather

    def all_gather_by_gloo(*args, **kwargs):
        torch.cuda.set_sync_debug_mode("default")  # gloo copies through the host
        all_gather(*args, **kwargs)
        torch.cuda.set_sync_debug_mode("error")

    dist.all_gather = all_gather_by_gloo
    exchange = LatentExchange(GRID, rank, 2, SENT)
    latents = [exact(step, 2).to(device) for step in range(6)]
    known = [latents[0].cpu()]
    exchange.remember(latents[0])
    for step in range(1, 6):
        torch.cuda.set_sync_debug_mode("error")
        now = exchange.step(latents[step])
        torch.cuda.set_sync_debug_mode("default")
        known.append(now.cpu())
    dist.all_gather = all_gather
    return known, walk(rank, 2, 5)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@pytest.mark.ranks
@needs_gpu
def test_on_a_gpu_a_step_never_waits_for_the_device_and_gives_what_the_cpu_gives():
    for on_gpu, on_cpu in run_ranks(2, walk_on_one_gpu):
        for ours, theirs in zip(on_gpu, on_cpu, strict=True):
            assert torch.equal(ours, theirs)


def gather_by_nccl(rank):
    group = dist.new_group([0], backend="nccl")
    own = torch.arange(6.0, device="cuda").view(3, 2).t()
    gather(own, group)  # NCCL sets itself up
    torch.cuda.set_sync_debug_mode("error")
    collected = gather(own, group)
    torch.cuda.set_sync_debug_mode("default")
    return collected.cpu()


@pytest.mark.gpu
@pytest.mark.ranks
@needs_gpu
def test_a_collective_by_nccl_never_waits_for_the_device():
    (collected,) = run_ranks(1, gather_by_nccl)
    assert collected.tolist() == [[[0, 2, 4], [1, 3, 5]]]


def test_one_slice_has_nobody_to_talk_to():
    assert not dist.is_initialized()
    exchange = LatentExchange(GRID, 0, 1, SENT)
    latents = exact(0, 1)
    exchange.remember(latents)
    assert exchange.step(latents) is latents
    assert exchange.finalize(latents) is latents


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"k": 0}, "k=0: a step sends 1 to 10 blocks"),
        ({"k": 11}, "k=11: a step sends 1 to 10 blocks"),
        ({"k": 3, "score": "sine"}, "score=sine: use one of cosine"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        LatentExchange(GRID, 0, 1, **options)
