# Set up otil_exp on a cluster, on a login node that has internet; run it again after an update.
#
#   bash launchers/environment.sh                       # from the checkout, which lies where all nodes see it
#   PYTHON=python3.12 SHARED=/scratch/$USER bash launchers/environment.sh
#
# Makes .venv beside the checkout's other files, and SHARED/huggingface for weights. Then, in every shell and job:
#   source launchers/activate.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
shared=${SHARED:-$PWD}
make PYTHON="${PYTHON:-python3}" .venv/installed
mkdir -p "$shared/huggingface"
cat >launchers/activate.sh <<ACTIVATE
# Written by launchers/environment.sh.
source "$PWD/.venv/bin/activate"
export HF_HOME="$shared/huggingface"
export HF_HUB_OFFLINE=1             # ranks read weights, and never fetch them
ACTIVATE
echo "now: source launchers/activate.sh; HF_HUB_OFFLINE=0 otil-exp-fetch"
