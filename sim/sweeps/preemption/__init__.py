"""What should become of a preempted request's KV: one workload under every mode, KV size, link and max_num_seqs."""
