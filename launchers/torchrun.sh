#!/usr/bin/env bash
# One cell over several machines without a scheduler: run it on each of them, with the same words but for NODE_RANK.
#
#   NODES=2 NODE_RANK=0 FIRST=gpu07 launchers/torchrun.sh preset=otil topology=8gpu_split model=sdxl    # on gpu07
#   NODES=2 NODE_RANK=1 FIRST=gpu07 launchers/torchrun.sh preset=otil topology=8gpu_split model=sdxl    # on gpu08
#
# RANKS: ranks of a machine (4). The checkout, the outputs and HF_HOME lie where all machines see them.
# On one machine `otil-exp` starts its ranks itself; a grid needs `otil-exp -m`.
set -euo pipefail
exec torchrun --nnodes="${NODES:-1}" --node_rank="${NODE_RANK:-0}" --nproc_per_node="${RANKS:-4}" \
    --master_addr="${FIRST:-127.0.0.1}" --master_port="${PORT:-29500}" -m otil_exp.app "$@"
