{{/* Names and labels. */}}

{{- define "gpu-dra-driver.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gpu-dra-driver.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpu-dra-driver.labels" -}}
{{ include "gpu-dra-driver.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* An image of the list (root, image). */}}
{{- define "gpu-dra-driver.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- with $root.Values.image.registry -}}
{{- if contains "://" . }}{{ fail (printf "image.registry: %s: want the registry without its scheme, such as registry.example.com/team" .) }}{{ end -}}
{{ trimSuffix "/" . }}/
{{- end -}}
{{ $image.repository }}:{{ coalesce $image.tag $root.Values.image.tag $root.Chart.AppVersion }}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* Facts read from the cluster. */}}

{{- define "gpu-dra-driver.isGKE" -}}
{{- if contains "-gke." .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end -}}

{{- define "gpu-dra-driver.isOpenShift" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}true{{ end -}}
{{- end -}}

{{/* The annotation of pods that names their security context constraint. Without it OpenShift
     could admit them under a wider one that their account may use as well. */}}
{{- define "gpu-dra-driver.requiredSCC" -}}
{{- if and .Values.openshift.ownSCC (include "gpu-dra-driver.isOpenShift" .) -}}
openshift.io/required-scc: {{ include "gpu-dra-driver.fullname" . }}
{{- end -}}
{{- end -}}

{{/* The folder of the driver container that the GPU operator runs; empty if it
     runs none, or the cluster cannot be queried. */}}
{{- define "gpu-dra-driver.operatorDriver" -}}
{{- if .Capabilities.APIVersions.Has "nvidia.com/v1/ClusterPolicy" -}}
{{- with first ((lookup "nvidia.com/v1" "ClusterPolicy" "" "").items | default list) -}}
{{- if dig "spec" "driver" "enabled" true . -}}
{{ clean (dig "spec" "hostPaths" "driverInstallDir" "/run/nvidia/driver" .) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The same, or / if all nodes have a driver of their own: the operator labels such
     nodes, and runs no driver container on them. */}}
{{- define "gpu-dra-driver.driverOfOperatorsNodes" -}}
{{- with include "gpu-dra-driver.operatorDriver" . -}}
{{- $installed := list -}}{{- $contained := list -}}
{{- range (lookup "v1" "Node" "" "").items -}}
{{- $label := dig "metadata" "labels" "nvidia.com/gpu.deploy.driver" "" . -}}
{{- if eq $label "pre-installed" -}}
{{- $installed = append $installed .metadata.name -}}
{{- else if not (has $label (list "" "false")) -}}
{{- $contained = append $contained .metadata.name -}}
{{- end -}}
{{- end -}}
{{- if not $installed -}}
{{ . }}
{{- else if not $contained -}}
/
{{- else -}}
{{- fail (printf "driver.root is auto, and the nodes are of two kinds: %s has the driver installed on the host (label nvidia.com/gpu.deploy.driver=pre-installed), %s has the GPU operator's driver container. Make two releases, one with driver.root=/ and one with driver.root=%s, each for its nodes (nodes.withLabels); the chart's README describes how to install two releases" (first $installed) (first $contained) .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Paths on the node. */}}

{{- define "gpu-dra-driver.hostDriverRoot" -}}
{{- if include "gpu-dra-driver.simulated" . -}}
{{- include "gpu-dra-driver.checkSimulatedDriver" . -}}
{{ clean .Values.simulation.dir }}
{{- else if ne .Values.driver.root "auto" -}}
{{ clean .Values.driver.root }}
{{- else if include "gpu-dra-driver.isGKE" . -}}
/home/kubernetes/bin/nvidia
{{- else -}}
{{- /* Cached, because it may list all nodes and is used many times. */ -}}
{{- if not (hasKey .Values "foundDriverRoot") -}}
{{- $_ := set .Values "foundDriverRoot" (include "gpu-dra-driver.driverOfOperatorsNodes" . | default "/") -}}
{{- end -}}
{{ .Values.foundDriverRoot }}
{{- end -}}
{{- end -}}

{{- define "gpu-dra-driver.hostDevRoot" -}}
{{- $driver := include "gpu-dra-driver.hostDriverRoot" . -}}
{{- if include "gpu-dra-driver.simulated" . -}}
{{ $driver }}
{{- else if ne .Values.driver.devRoot "auto" -}}
{{ clean .Values.driver.devRoot }}
{{- else if or (eq $driver "/run/nvidia/driver") (eq $driver (include "gpu-dra-driver.operatorDriver" .)) -}}
{{ $driver }}
{{- else -}}
/
{{- end -}}
{{- end -}}

{{/* The same paths in the agent's container. It mounts the parent of the driver root:
     the root of a driver container is itself a mount, and a later mount is visible
     only in a folder that was mounted before. */}}
{{- define "gpu-dra-driver.driverRoot" -}}
{{ clean (printf "/host%s" (include "gpu-dra-driver.hostDriverRoot" .)) }}
{{- end -}}

{{- define "gpu-dra-driver.driverMount" -}}
{{ clean (printf "/host%s" (include "gpu-dra-driver.hostDriverRoot" . | dir)) }}
{{- end -}}

{{- define "gpu-dra-driver.devRoot" -}}
{{- $dev := include "gpu-dra-driver.hostDevRoot" . -}}
{{- if eq $dev "/" -}}
/
{{- else if eq $dev (include "gpu-dra-driver.hostDriverRoot" .) -}}
{{ include "gpu-dra-driver.driverRoot" . }}
{{- else -}}
/dev-root
{{- end -}}
{{- end -}}

{{/* Fails for settings of the list (root, path of the settings, settings) that
     contradict others. */}}
{{- define "gpu-dra-driver.checkSettings" -}}
{{- $root := index . 0 -}}{{- $path := index . 1 -}}{{- $settings := index . 2 | default dict -}}
{{- if not $root.Values.mps.enabled -}}
{{- range include "gpu-dra-driver.devices" $root | fromJsonArray -}}
{{- if and .needsMPS (has .offer (dig "offer" list $settings)) -}}
{{- fail (printf "%soffer: %s needs mps.enabled: true, because MPS limits %s" $path .offer .units) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "gpu-dra-driver.checkProfiles" (list $root (printf "%smig.profiles" $path) (dig "mig" "profiles" "" $settings)) -}}
{{- $known := keys (dig "mig-configs" dict (include "gpu-dra-driver.layouts" $root | fromYaml)) | sortAlpha -}}
{{- with dig "mig" "layout" "" $settings -}}
{{- if not (has . $known) -}}
{{- fail (printf "%smig.layout: %q is not in mig.layouts, which has: %s" $path . (join ", " $known | default "none")) -}}
{{- end -}}
{{- if ne $root.Values.mig.mode "dynamic" -}}
{{- fail (printf "%smig.layout needs mig.mode: dynamic, because an administrator makes the MIG devices of static" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The file of layouts. Fails unless it is as the agent reads it. Which profiles a GPU has,
     and how many have place on it, only the agent knows. */}}
{{- define "gpu-dra-driver.layouts" -}}
{{- with .Values.mig.layouts | trim -}}
{{- $file := fromYaml . -}}
{{- with $file.Error }}{{ fail (printf "mig.layouts is not YAML: %s" .) }}{{ end -}}
{{- if regexMatch "(?s)\\S.*\n---" . }}{{ fail "mig.layouts has more than one YAML document; want one" }}{{ end -}}
{{- with keys (omit $file "version" "mig-configs") | sortAlpha }}{{ fail (printf "mig.layouts: unknown field %q; known are: version, mig-configs" (first .)) }}{{ end -}}
{{- if ne (toString $file.version) "v1" }}{{ fail (printf "mig.layouts: version: %v; want v1" $file.version) }}{{ end -}}
{{- if not (and (kindIs "map" (index $file "mig-configs")) (index $file "mig-configs")) }}{{ fail "mig.layouts: no mig-configs; want a map of at least one layout" }}{{ end -}}
{{- range $name, $entries := index $file "mig-configs" -}}
{{- if not (and (kindIs "slice" $entries) $entries) }}{{ fail (printf "mig.layouts: %s: want a list of at least one entry" $name) }}{{ end -}}
{{- $state := dict "all" false "indices" list -}}
{{- range $i, $entry := $entries -}}
{{- include "gpu-dra-driver.checkLayoutEntry" (list (printf "mig.layouts: %s, entry %d" $name (add1 $i)) $entry $state) -}}
{{- end -}}
{{- end -}}
{{ . }}
{{- end -}}
{{- end -}}

{{/* Fails for an entry of a layout that the agent refuses: of the list (path, entry, GPUs of
     the entries before it that have no filter). */}}
{{- define "gpu-dra-driver.checkLayoutEntry" -}}
{{- $path := index . 0 -}}{{- $entry := index . 1 -}}{{- $state := index . 2 -}}
{{- if not (kindIs "map" $entry) }}{{ fail (printf "%s: want devices, mig-enabled and mig-devices" $path) }}{{ end -}}
{{- with keys (omit $entry "device-filter" "devices" "mig-enabled" "mig-devices") | sortAlpha -}}
{{- fail (printf "%s: unknown field %q; known are: device-filter, devices, mig-enabled, mig-devices" $path (first .)) -}}
{{- end -}}
{{- $devices := $entry.devices -}}{{- $parts := index $entry "mig-devices" -}}{{- $enabled := index $entry "mig-enabled" -}}
{{- $list := ternary $devices list (kindIs "slice" $devices) -}}
{{- if not (or (eq (toString $devices) "all") $list) }}{{ fail (printf "%s: devices: want all, or a list of indices from 0, such as [0, 1]" $path) }}{{ end -}}
{{- range $list -}}
{{- if not (regexMatch "^[0-9]+$" (toString .)) }}{{ fail (printf "%s: devices: %v is not an index; want numbers from 0" $path .) }}{{ end -}}
{{- end -}}
{{- if not (kindIs "bool" $enabled) }}{{ fail (printf "%s: mig-enabled: want true or false" $path) }}{{ end -}}
{{- if not (or (kindIs "map" $parts) (and (kindIs "invalid" $parts) (not $enabled))) }}{{ fail (printf "%s: mig-devices: want profiles with their counts, or {} for MIG on demand" $path) }}{{ end -}}
{{- if and (not $enabled) $parts }}{{ fail (printf "%s: mig-devices, and mig-enabled is false" $path) }}{{ end -}}
{{- include "gpu-dra-driver.checkLayoutParts" (list $path $parts) -}}
{{- include "gpu-dra-driver.checkLayoutFilter" (list $path (index $entry "device-filter")) -}}
{{- if not (index $entry "device-filter") -}}
{{- if or $state.all (and (not $list) $state.indices) }}{{ fail (printf "%s: a GPU is of another entry too; give each GPU one entry" $path) }}{{ end -}}
{{- range $list -}}
{{- if has (toString .) $state.indices }}{{ fail (printf "%s: GPU %v is of another entry too; give each GPU one entry" $path .) }}{{ end -}}
{{- $_ := set $state "indices" (append $state.indices (toString .)) -}}
{{- end -}}
{{- if not $list }}{{ $_ := set $state "all" true }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "gpu-dra-driver.checkLayoutParts" -}}
{{- $path := index . 0 -}}{{- $any := false -}}
{{- range $profile, $count := index . 1 -}}
{{- if contains "c." $profile }}{{ fail (printf "%s: compute instances such as %s are not supported" $path $profile) }}{{ end -}}
{{- if not (regexMatch "^[1-9][0-9]?g\\.[1-9][0-9]{0,3}gb([+]me|[+]me\\.all|[+]gfx|-me)?$" $profile) -}}
{{- fail (printf "%s: %q is not a MIG profile such as 1g.10gb" $path $profile) -}}
{{- end -}}
{{- if not (and (regexMatch "^[0-9]+$" (toString $count)) (not (kindIs "string" $count)) (le (int $count) 64)) -}}
{{- fail (printf "%s: %v MIG devices %s; want a number that a GPU can have" $path $count $profile) -}}
{{- end -}}
{{- if int $count }}{{ $any = true }}{{ end -}}
{{- end -}}
{{- if and (index . 1) (not $any) }}{{ fail (printf "%s: all counts of mig-devices are 0" $path) }}{{ end -}}
{{- end -}}

{{- define "gpu-dra-driver.checkLayoutFilter" -}}
{{- $path := index . 0 -}}{{- $filter := index . 1 -}}
{{- if not (or (kindIs "invalid" $filter) (kindIs "string" $filter) (kindIs "slice" $filter)) }}{{ fail (printf "%s: device-filter: want a text or a list of texts" $path) }}{{ end -}}
{{- if $filter -}}
{{- range (ternary $filter (list $filter) (kindIs "slice" $filter)) -}}
{{- if not (and (kindIs "string" .) (regexMatch "^(0[xX][0-9a-fA-F]{1,8}|[0-9]+)(:(0[xX][0-9a-fA-F]{1,8}|[0-9]+))?$" (toString .))) -}}
{{- fail (printf "%s: device-filter %v; want the IDs of device and vendor, such as 0x233010DE, and those of the subsystem after a colon if needed" $path .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gpu-dra-driver.layoutLabel" -}}
{{- if and .Values.mig.configLabel (ne .Values.mig.mode "dynamic") -}}
{{- fail "mig.configLabel needs mig.mode: dynamic, because an administrator makes the MIG devices of static" -}}
{{- end -}}
{{ .Values.mig.configLabel }}
{{- end -}}

{{- define "gpu-dra-driver.nodeConfigs" -}}
{{- range $name, $settings := .Values.nodeConfigs -}}
{{- include "gpu-dra-driver.checkSettings" (list $ (printf "nodeConfigs.%s." $name) $settings) -}}
{{- end -}}
{{ toYaml .Values.nodeConfigs }}
{{- end -}}

{{- define "gpu-dra-driver.exclusiveCompute" -}}
{{- if and .Values.mps.exclusiveCompute (not .Values.mps.enabled) -}}
{{- fail "mps.exclusiveCompute needs mps.enabled" -}}
{{- end -}}
{{ .Values.mps.exclusiveCompute }}
{{- end -}}

{{/* An amount of memory, of the schema's kind, as a number of Mi. */}}
{{- define "gpu-dra-driver.mebibytes" -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- get (dict "" 1 "Mi" 1 "Gi" 1024 "Ti" 1048576) (regexFind "[MGT]i$" .) | int64 | mul $number -}}
{{- end -}}

{{- define "gpu-dra-driver.mpsSocket" -}}
{{- if .Values.mps.enabled }}{{ clean .Values.supervisor.runDir }}/supervisor.sock{{ end -}}
{{- end -}}

{{/* Simulated GPUs. */}}

{{- define "gpu-dra-driver.simulated" -}}
{{- if .Values.simulation.model }}true{{ end -}}
{{- end -}}

{{/* Fails if the location of a driver is set, which simulated GPUs have in simulation.dir. */}}
{{- define "gpu-dra-driver.checkSimulatedDriver" -}}
{{- range $name := list "root" "devRoot" -}}
{{- $value := index $.Values.driver $name -}}
{{- if ne $value "auto" -}}
{{- fail (printf "driver.%s is %s, and simulation.model is %s: simulated GPUs have their driver in simulation.dir (%s); remove one of the two settings" $name $value $.Values.simulation.model $.Values.simulation.dir) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of a model of simulation.models; empty for one that is built in. */}}
{{- define "gpu-dra-driver.modelFile" -}}
{{- $model := .Values.simulation.model -}}
{{- if hasSuffix ".yaml" $model -}}
{{- if not (hasKey .Values.simulation.models $model) -}}
{{- fail (printf "simulation.model is %s, and simulation.models has no %s; it has: %s" $model $model (keys .Values.simulation.models | sortAlpha | join ", " | default "none")) -}}
{{- end -}}
{{ $model }}
{{- else if $model -}}
{{- $builtIn := list "1-h200" "a30-bridge" "dgx-a100" "dgx-b200" "dgx-h100" "dgx-h100-r615" "dgx1-v100" "gb200" "hgx-h200" "l40s" "mixed-a30-l40s" "rtx-pro-6000" "t4" -}}
{{- if not (has $model $builtIn) -}}
{{- fail (printf "simulation.model: %q is not built in; want one of %s, or one of simulation.models, whose name ends with .yaml" $model (join ", " $builtIn)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The container that makes the simulated driver before the pod's programs start. */}}
{{- define "gpu-dra-driver.simulationContainer" -}}
- name: simulated-gpus
  image: {{ include "gpu-dra-driver.image" (list . .Values.simulation.image) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  terminationMessagePolicy: FallbackToLogsOnError
  command: [gpu-sim]
  args:
  - create
  - --state={{ clean .Values.simulation.dir }}
  - --model={{ with include "gpu-dra-driver.modelFile" . }}/etc/gpu-sim/{{ . }}{{ else }}{{ .Values.simulation.model }}{{ end }}
  # The agent's pod and the supervisor's have the same folder, and later pods keep it.
  - --if-missing
  securityContext:
    runAsUser: 0
    readOnlyRootFilesystem: true
    allowPrivilegeEscalation: false
    # The simulated GPUs have device nodes.
    capabilities: {drop: [ALL], add: [MKNOD]}
  volumeMounts:
  - name: simulation
    mountPath: {{ clean .Values.simulation.dir }}
  {{- if include "gpu-dra-driver.modelFile" . }}
  - name: models
    mountPath: /etc/gpu-sim
    readOnly: true
  {{- end }}
{{- end -}}

{{- define "gpu-dra-driver.simulationMounts" -}}
# A simulated driver counts the memory of processes by their cgroups.
- name: cgroups
  mountPath: /sys/fs/cgroup
  readOnly: true
{{- end -}}

{{- define "gpu-dra-driver.simulationVolumes" -}}
- name: cgroups
  hostPath: {path: /sys/fs/cgroup, type: Directory}
- name: simulation
  hostPath: {path: {{ clean .Values.simulation.dir }}, type: DirectoryOrCreate}
{{- if include "gpu-dra-driver.modelFile" . }}
- name: models
  configMap: {name: {{ include "gpu-dra-driver.fullname" . }}-models}
{{- end }}
{{- end -}}

{{/* Settings of agent and supervisor. */}}

{{- define "gpu-dra-driver.loggingArgs" -}}
- --logging-format={{ .format }}
- --log-flush-frequency={{ .flushFrequency }}
- --v={{ .verbosity }}
{{- with .vmodule }}
- --vmodule={{ . }}
{{- end }}
{{- end -}}

{{/* Placement of the pods. */}}

{{/* A match expression of the list (label, present): KEY or KEY=VALUE. */}}
{{- define "gpu-dra-driver.matchExpression" -}}
{{- $label := index . 0 -}}{{- $present := index . 1 -}}
{{- if contains "=" $label -}}
{{- $parts := splitn "=" 2 $label -}}
{key: {{ $parts._0 | quote }}, operator: {{ ternary "In" "NotIn" $present }}, values: [{{ $parts._1 | quote }}]}
{{- else -}}
{key: {{ $label | quote }}, operator: {{ ternary "Exists" "DoesNotExist" $present }}}
{{- end -}}
{{- end -}}

{{- define "gpu-dra-driver.placement" -}}
{{- $any := .Values.nodes.withAnyLabel -}}
{{- if include "gpu-dra-driver.simulated" . }}{{ $any = list }}{{ end -}}
{{- $none := .Values.nodes.withoutLabels -}}
{{- with .Values.nodes.withLabels }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or $any $none }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      {{- if $any }}
      {{- range $any }}
      - matchExpressions:
        - {{ include "gpu-dra-driver.matchExpression" (list . true) }}
        {{- range $none }}
        - {{ include "gpu-dra-driver.matchExpression" (list . false) }}
        {{- end }}
      {{- end }}
      {{- else }}
      - matchExpressions:
        {{- range $none }}
        - {{ include "gpu-dra-driver.matchExpression" (list . false) }}
        {{- end }}
      {{- end }}
{{- end }}
{{- with .Values.nodes.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priority.className }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A condition of a DeviceClass for the list (root, type, class). The class is a key of
     policies.classes, or empty. The scheduler allocates a device without shares whole, whatever
     amount a claim requests, so a class of limited shares selects devices with shares only. */}}
{{- define "gpu-dra-driver.ofType" -}}
{{- $root := index . 0 -}}{{- $driver := $root.Values.driverName -}}
{{- $policy := index ($root.Values.policies.classes | default dict) (index . 2) | default dict -}}
device.driver == '{{ $driver }}' &&
device.attributes['{{ $driver }}'].type == '{{ index . 1 }}'
{{- if or (hasKey $policy "max-memory") (eq ($policy.shares | default "") "only") }} &&
device.allowMultipleAllocations
{{- end -}}
{{- end -}}

{{/* Objects for Prometheus. */}}

{{- define "gpu-dra-driver.monitoringMetadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "gpu-dra-driver.labels" . | nindent 2 }}
  {{- with .Values.monitoring.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "gpu-dra-driver.agentSelector" -}}
selector:
  matchLabels:
    {{- include "gpu-dra-driver.selectorLabels" . | nindent 4 }}
    app.kubernetes.io/component: agent
{{- end -}}

{{- define "gpu-dra-driver.monitoringEndpoint" -}}
- port: http
  path: /metrics
  interval: {{ .Values.monitoring.interval }}
  # Metrics of claims have the namespace, pod and container that use the GPU. Those of the
  # agent's own pod must not replace them.
  honorLabels: true
  relabelings:
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: node
{{- end -}}
