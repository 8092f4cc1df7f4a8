#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nvidia-smi of a simulated NVIDIA driver. It shows the GPUs and MIG devices whose
# device nodes are below the root that this file is in: all of them on the node, and
# the allocated ones in a container. For changes it calls gpu-sim, on the node only.
sim='@SIM@'
version='@VERSION@' cuda='@CUDA@'
# Programs preload libnvidia-ml for the real nvidia-smi. A script does not need it.
unset LD_PRELOAD
here="${0%/*}"
root="$here/../.."
dev="$root/dev"

quit() { # STATUS MESSAGE
	echo "$2"
	exit "$1"
}

# A supplied argument is invalid: status 2. No such GPU: 6. No rights: 4.
invalid() { quit 2 "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help."; }
nothing() { quit 6 'No devices were found'; }

usage() {
	cat <<'USAGE'
nvidia-smi [-i ID[,ID]...]                        a table of the GPUs
nvidia-smi [-i ID[,ID]...] -L                     a line for each GPU and MIG device
nvidia-smi [-i ID[,ID]...] --query-gpu=FIELD[,FIELD]... --format=csv[,noheader][,nounits]
nvidia-smi topo -m                                how the GPUs are connected
On the node itself also: --gpu-reset -i ID, -c MODE, compute-policy.
USAGE
}

for argument; do
	case "$argument" in
	-r | --gpu-reset | -c | --compute-mode | --compute-mode=* | compute-policy)
		if [ -x "$sim" ] && [ -e "$root/var/lib/gpu-sim/state.json" ]; then
			GPU_SIM_STATE="$root" exec "$sim" nvidia-smi "$@"
		fi
		quit 4 "Insufficient permissions: simulated NVIDIA driver $version: use gpu-sim on the host"
		;;
	esac
done

action=table fields= format= ids= matrix=
choose() {
	[ "$action" = table ] || invalid
	action=$1
}
while [ $# -gt 0 ]; do
	case "$1" in
	-h | --help)
		usage
		exit 0
		;;
	--version)
		printf 'NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\nCUDA Version        : %s\n' "$version" "${version%.*}" "$version" "$cuda"
		exit 0
		;;
	-L | --list-gpus) choose list ;;
	--query-gpu=*)
		choose query
		fields=${1#*=}
		;;
	--format=*) format=${1#*=} ;;
	-i | --id)
		[ $# -gt 1 ] || invalid
		shift
		ids=$1
		;;
	-i=* | --id=*) ids=${1#*=} ;;
	topo) choose topo ;;
	-m | --matrix) matrix=1 ;;
	*) invalid ;;
	esac
	shift
done

# each calls a function for each visible GPU that the arguments select. NVML numbers
# the visible ones from 0.
each() {
	index=0 found=
	while IFS='|' read -r minor uuid name bus total reserved capability serial mode pending compute persistence ecc eccpending numa cpus memorynuma; do
		[ -e "$dev/nvidia$minor" ] || continue
		case ",$ids," in
		,, | *",$index,"* | *",$uuid,"* | *",$bus,"* | *",${bus#0000},"*)
			found=1
			"$@"
			;;
		esac
		index=$((index + 1))
	done <<'GPUS'
@GPUS@
GPUS
	[ "$found" ]
}

# migs calls a function for each visible MIG device of the GPU: its capabilities
# are there, or the one to monitor all.
migs() {
	device=0
	while IFS='|' read -r of gicap cicap profile miguuid migmemory gi ci; do
		[ "$of" = "$minor" ] || continue
		if ! [ -e "$dev/nvidia-caps/nvidia-cap@MONITOR@" ]; then
			[ -e "$dev/nvidia-caps/nvidia-cap$gicap" ] && [ -e "$dev/nvidia-caps/nvidia-cap$cicap" ] || continue
		fi
		"$@"
		device=$((device + 1))
	done <<'MIGS'
@MIGS@
MIGS
}

list_mig() { printf '  MIG %-11s Device %2d: (UUID: %s)\n' "$profile" "$device" "$miguuid"; }
list_gpu() {
	printf 'GPU %d: %s (UUID: %s)\n' "$index" "$name" "$uuid"
	migs list_mig
}

# count_all counts the visible GPUs, and ends if the arguments select none of them.
count_gpu() { count=$((count + 1)); }
count_all() {
	each : || nothing
	count=0 asked=$ids ids=
	each count_gpu
	ids=$asked
}

# describe sets the unit and the value of a field. It fails if the field is unknown.
describe() {
	unit= value=
	case "$1" in
	index) value=$index ;;
	name | gpu_name) value=$name ;;
	uuid | gpu_uuid) value=$uuid ;;
	pci.bus_id | gpu_bus_id) value=$bus ;;
	serial | gpu_serial) value=$serial ;;
	count) value=$count ;;
	driver_version) value=$version ;;
	memory.total) unit=MiB value=$total ;;
	memory.reserved) unit=MiB value=$reserved ;;
	memory.used | memory.free) unit=MiB ;;
	utilization.gpu | utilization.memory) unit=% ;;
	power.draw | power.limit) unit=W ;;
	temperature.gpu | fan.speed | pstate) ;;
	compute_cap) value=$capability ;;
	compute_mode) value=$compute ;;
	persistence_mode) value=$persistence ;;
	mig.mode.current) value=$mode ;;
	mig.mode.pending) value=$pending ;;
	ecc.mode.current) value=$ecc ;;
	ecc.mode.pending) value=$eccpending ;;
	*) return 1 ;;
	esac
}

# row joins one part of every field: title for the header, value for a GPU.
row() {
	line= rest=$fields,
	while [ "$rest" ]; do
		field=${rest%%,*} rest=${rest#*,}
		field=${field# }
		describe "$field" || quit 2 "Field \"$field\" is not a valid field to query."
		case "$1" in
		title) cell="$field${unit:+ [$unit]}" ;;
		*)
			cell=${value:-[N/A]}
			[ -z "$value" ] || [ "$nounits" ] || cell="$cell${unit:+ $unit}"
			;;
		esac
		line="$line${line:+, }$cell"
	done
	if [ "$1" = value ] || [ -z "$noheader" ]; then
		echo "$line"
	fi
}

query() {
	noheader= nounits= csv= rest=$format,
	[ "$format" ] || quit 2 "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help."
	while [ "$rest" ]; do
		option=${rest%%,*} rest=${rest#*,}
		case "${option# }" in
		csv) csv=1 ;;
		noheader) noheader=1 ;;
		nounits) nounits=1 ;;
		*) quit 2 "Unknown or invalid option for --format: $option" ;;
		esac
	done
	[ "$csv" ] || quit 2 'Only csv is a valid --format.'
	count_all
	row title
	each row value
}

# relation prints how two GPUs are connected, by their minors.
relation() {
	while IFS='|' read -r a b how; do
		if [ "$a$b" = "$1$2" ] || [ "$a$b" = "$2$1" ]; then
			printf '\t%s' "$how"
		fi
	done <<'PAIRS'
@PAIRS@
PAIRS
}

collect() {
	minors="$minors $minor"
	printf '\tGPU%d' "$index"
}
connect() {
	printf 'GPU%d' "$index"
	for other in $minors; do
		if [ "$other" = "$minor" ]; then printf '\t X '; else relation "$minor" "$other"; fi
	done
	printf '\t%s\t%s\t\t%s\n' "${cpus:-N/A}" "${numa:-N/A}" "${memorynuma:-N/A}"
}
topo() {
	[ "$matrix" ] && [ -z "$format" ] || invalid
	minors=
	header=$(each collect) || nothing
	each collect >/dev/null
	printf '%s\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n' "$header"
	each connect
	cat <<'LEGEND'

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
LEGEND
}

onoff() { case "$1" in Enabled) echo "$2" ;; Disabled) echo "$3" ;; *) echo N/A ;; esac; }
table_gpu() {
	printf '| %3d  %-24.24s %8s  |%19s Off | %20s |\n' "$index" "$name" "$(onoff "$persistence" On Off)" "$bus" "$(onoff "$ecc" 0 Off)"
	printf '| %-39s | %22s | %8s %11.11s |\n' 'N/A   N/A  N/A              N/A / N/A' "N/A / ${total}MiB" N/A "$compute"
	printf '| %39s | %22s | %20s |\n' '' '' "${mode:-N/A}"
	echo '+-----------------------------------------+------------------------+----------------------+'
}
table_mig() {
	[ "$device" != 0 ] || [ "$titled" ] || {
		titled=1
		cat <<'TITLE'

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------------------------------+
| GPU  GI  CI  MIG |                     Memory-Usage | Name                              |
|      ID  ID  Dev |                                  |                                   |
|==================+==================================+===================================|
TITLE
	}
	printf '| %3d %3s %3s %4d | %32s | %-33.33s |\n' "$index" "$gi" "$ci" "$device" "N/A / ${migmemory}MiB" "MIG $profile"
	echo '+------------------+----------------------------------+-----------------------------------+'
}
table() {
	[ -z "$format$matrix" ] || invalid
	count_all
	date 2>/dev/null
	cat <<TITLE
+-----------------------------------------------------------------------------------------+
TITLE
	printf '| NVIDIA-SMI %-22.22s Driver Version: %-14.14s CUDA Version: %-8.8s |\n' "$version" "$version" "$cuda"
	cat <<'TITLE'
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
TITLE
	each table_gpu
	titled=
	each migs table_mig
	cat <<'PROCESSES'

+-----------------------------------------------------------------------------------------+
| Processes: not shown, this is a simulated NVIDIA driver (gpu-sim show on the host)      |
+-----------------------------------------------------------------------------------------+
PROCESSES
}

case "$action" in
list) [ -z "$format$matrix" ] || invalid; each list_gpu || nothing ;;
query) [ -z "$matrix" ] || invalid; query ;;
topo) topo ;;
table) table ;;
esac
