# SPDX-License-Identifier: Apache-2.0
"""Trains and decodes with a transformer of 16 layers: pytorch.py BARRIER PODS SECONDS.

It prints lines of JSON as gpuload does. A token is decoded by a replayed CUDA graph, and by single
launches, which wait for the CPU.
"""

import json
import os
import socket
import sys
import time

import torch

WIDTH, LAYERS, BATCH, LENGTH = 1024, 16, 16, 256


def say(step, **values):
    print(json.dumps({"step": step, **values}), flush=True)


def barrier(folder, pods):
    open(os.path.join(folder, socket.gethostname()), "w").close()
    while len(os.listdir(folder)) < pods:
        time.sleep(0.002)


def repeat(step, work, tokens, seconds):
    for _ in range(3):  # the first ones choose kernels
        work()
    torch.cuda.synchronize()
    began = time.monotonic()
    times = []
    while time.monotonic() - began < seconds:
        start = time.monotonic()
        work()
        torch.cuda.synchronize()
        times.append(1000 * (time.monotonic() - start))
    took = time.monotonic() - began
    times.sort()
    say(step, size=LAYERS, perSecond=len(times) * tokens / took, p50ms=times[len(times) // 2], p99ms=times[len(times) * 99 // 100],
        peakMiB=torch.cuda.max_memory_allocated() >> 20)


def main():
    folder, pods, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, LAYERS).to("cuda", torch.bfloat16)
    properties = torch.cuda.get_device_properties(0)
    say("info", devices=torch.cuda.device_count(), name=properties.name, multiprocessors=properties.multi_processor_count)
    barrier(folder, pods)

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(BATCH, LENGTH, WIDTH, device="cuda", dtype=torch.bfloat16)

    def train():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    repeat("train", train, BATCH * LENGTH, seconds)

    model.eval()
    token = torch.randn(1, 1, WIDTH, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        repeat("eager", lambda: model(token), 1, seconds)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            model(token)
        repeat("graph", graph.replay, 1, seconds)


main()
