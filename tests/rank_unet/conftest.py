from diffusers_ranks import one_thread, preloaded_ranks

__all__ = ["one_thread", "preloaded_ranks"]
