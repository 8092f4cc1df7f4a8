package controller

// fatalXIDs are the XIDs after which a GPU is not to be given to new claims:
// those for which NVIDIA's XID catalogue asks at once for a reset of the GPU, a
// restart of the machine or a look at its connections. What it answers with
// "restart the application" or "ignore" is not here; neither is XID 155, which
// also reports links that are down on purpose.
//
// Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
var fatalXIDs = map[uint64]string{
	46:  "the GPU stopped processing",
	48:  "double-bit ECC error",
	54:  "auxiliary power is not connected",
	62:  "internal micro-controller halted",
	64:  "GPU memory could not be remapped",
	74:  "NVLink error",
	79:  "the GPU has fallen off the bus",
	95:  "uncontained memory error",
	110: "security fault",
	119: "GSP does not answer",
	120: "GSP error",
	136: "NVLink training failed",
	140: "unrecovered ECC error",
	143: "the GPU could not be initialised",
	151: "key rotation error",
	156: "GPU memory must be retired",
	158: "fatal timeout of the GPU",
}

// applicationXIDs are the XIDs that an application's fault causes and that
// leave the GPU as it was. The catalogue asks for a reset after 109, a context
// switch that took too long; but it is a hanging kernel that brings it about,
// and the GPU of the next claim works.
var applicationXIDs = map[uint64]bool{
	13:  true, // graphics engine exception
	31:  true, // memory page fault
	43:  true, // stopped by a fault of the application
	45:  true, // cleaned up after the application
	68:  true, // video decoder exception
	109: true,
}
