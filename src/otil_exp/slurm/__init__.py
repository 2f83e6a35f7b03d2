"""A grid on Slurm: which jobs it becomes, what a job does in its allocation, and how they are waited for."""
