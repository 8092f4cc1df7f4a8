// SPDX-License-Identifier: Apache-2.0

// Package mpssim stands in for NVIDIA's MPS control daemon on a simulated node:
// a [Daemon] takes the real one's commands and environment, starts a server
// for its clients and holds them to their limits.
//
// As with the real one, defaults are for servers that start later, settings of
// a server for clients that connect later, a client's own limits only tighten
// its server's, and a client of another user waits until the server of the
// first has lost its clients, unless the daemon runs in multi-user mode. A server
// that does not start, such as one whose user cannot get to the pipe directory, is
// a connection that fails to its client. The server is a process of its GPUs or
// MIG devices from its start to its end.
//
// Beside what the real one logs, the daemon keeps a [Record] of its settings
// and clients in the log directory.
//
// # Protocol
//
// Commands and clients come to the unix socket "control" in the pipe
// directory. Both sides write JSON objects, one a line: a peer sends a
// [Request] and reads a [Reply] for each.
//
// The command line sends one command:
//
//	> {"op":"command","command":"get_server_list"}
//	< {"output":"4711\n"}
//
// A client sends the limits of its environment as they stand there. Its user
// and PID are those of the socket's peer. It must find the server's file in
// its /dev/shm and send what that file holds, which shows that both share it:
//
//	> {"op":"connect","activeThreadPercentage":"25","pinnedDeviceMemLimit":"0=20480M"}
//	< {"waiting":"server 4711 of user 0 has clients"}          (only if it has to wait)
//	< {"server":4711,"shm":"cuda.mps.4711"}
//	> {"op":"attach","token":"9f86d081884c7d65"}
//	< {"client":{"server":4711,"activeThreadPercentage":25,"devices":[{"ordinal":0,"uuid":"GPU-…","name":"…","memoryBytes":…,"limitBytes":21474836480}]}}
//	> {"op":"alloc","device":0,"bytes":1073741824}
//	< {"usedBytes":1073741824}
//	> {"op":"free","device":0,"bytes":1073741824}
//	< {"usedBytes":0}
//
// A refusal is {"error":{"name":"OUT_OF_MEMORY","code":2,"message":"…"}}, with
// the name and number of CUDA's driver API. The daemon sends one without being
// asked when it ends a client, and closes the connection then. A client ends
// by closing it.
//
// Out of scope: computing anything, MPS v3 (named servers and namespaces),
// static partitioning, client priorities.
package mpssim
