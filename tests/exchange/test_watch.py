import pytest
import torch
from watch import NoHostRead

HOST_READS = {
    "item": lambda x: x[0].item(),
    "bool": lambda x: bool(x.sum() > 1),
    "float": lambda x: float(x.sum()),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "mask assignment": lambda x: x.__setitem__(x > 1, torch.zeros(2)),
    "masked_select": lambda x: x.masked_select(x > 1),
    "where": lambda x: torch.where(x > 1),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x),
}


@pytest.mark.parametrize("read", HOST_READS.values(), ids=HOST_READS.keys())
def test_a_host_read_is_refused(read):
    with NoHostRead(), pytest.raises(RuntimeError, match="makes the host wait"):
        read(torch.tensor([1.0, 2.0, 3.0]))


def test_device_work_is_let_through():
    with NoHostRead():
        values = torch.tensor([1.0, 2.0, 3.0])
        values.index_copy_(0, values.topk(1).indices, values.index_select(0, values.topk(1).indices))
