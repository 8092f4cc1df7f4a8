// SPDX-License-Identifier: Apache-2.0

// Package mpssim simulates NVIDIA's MPS control daemon on a simulated node. A [Daemon]
// accepts the commands and the environment of the real one, starts a server for its
// clients and enforces their limits.
//
// The behaviour of the real daemon is simulated:
//
//   - Defaults apply to servers that start later, and settings of a server to clients
//     that connect later.
//   - A client's own limits can only be tighter than its server's.
//   - A client of another user waits until the server of the first user has no
//     clients, unless the daemon runs in multi-user mode.
//   - If a server cannot start, for example because its user has no access to the pipe
//     directory, the connection of its client fails.
//   - The server is a process of its GPUs or MIG devices from its start to its end.
//
// With protocol 3, which drivers have from release 615:
//
//   - Servers have names, and namespaces with limits. A client belongs to the namespace
//     whose folder it connects through. The folder of a server and its namespace
//     "default" are the same, and the folder of the daemon leads to a server of the user.
//   - A namespace inherits nothing of its server, whose settings apply to the default
//     namespace only. The namespace's percentage replaces the client's own. Of two memory
//     limits the tighter counts, but none does if the client's own names a device that
//     it does not see. The client's context counts against its limit.
//   - A server whose devices are not there disappears; its creation succeeds.
//   - In multi-user mode a server has the user ID 0 and clients of all users; otherwise
//     a client of another user is not permitted.
//   - All settings end with the daemon. A configuration file has those of its start.
//   - The program sends its arguments as one command. The daemon keeps its protocol,
//     whatever the program was started with.
//
// In addition, the daemon keeps a [Record] of its settings and clients in the log
// directory.
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
// A client sends the limits of its environment unchanged. The daemon reads its user
// and PID from the socket. The client must read the server's file in its /dev/shm and
// send the content, which proves that both share that directory:
//
//	> {"op":"connect","activeThreadPercentage":"25","pinnedDeviceMemLimit":"0=20480M"}
//	< {"waiting":"server 4711 of user 0 has clients"}          (only if it has to wait)
//	< {"server":4711,"shm":"cuda.mps.4711"}
//	> {"op":"attach","token":"9f86d081884c7d65"}
//	< {"client":{"server":4711,"activeThreadPercentage":25,"devices":[{"ordinal":0,"uuid":"GPU-…","name":"…","memoryBytes":…,"limitBytes":21474836480,"multiprocessors":32}]}}
//	> {"op":"alloc","device":0,"bytes":1073741824}
//	< {"usedBytes":1073741824}
//	> {"op":"info","device":0}
//	< {"memory":{"totalBytes":…,"freeBytes":…}}
//	> {"op":"free","device":0,"bytes":1073741824}
//	< {"usedBytes":0}
//
// A refusal is {"error":{"name":"OUT_OF_MEMORY","code":2,"message":"…"}}, with
// the name and number of CUDA's driver API. The daemon also sends one when it ends a
// client, and then closes the connection. A client ends by closing the connection.
//
// The socket of a namespace accepts clients only. NVIDIA documents neither that nor what
// becomes of the clients of a namespace that is deleted: here they stay.
//
// Out of scope: computing, static partitioning, client priorities, the fields of
// protocol 3 for locality domains and features, and its "server get" and "client get".
package mpssim
