{{/* The labels by which {{ fullname }}-requests knows a DeviceClass, for the list
     (root, class, type): what it is, and what policies.classes says of it. */}}
{{- define "gpu-dra-driver.classLabels" -}}
{{- $root := index . 0 -}}
{{- include "gpu-dra-driver.labels" $root }}
gpu.nvidia.com/type: {{ index . 2 }}
{{- range $label, $value := index $root.Values.policies.classes (index . 1) }}
gpu.nvidia.com/{{ $label }}: {{ $value | toString | quote }}
{{- end }}
{{- end -}}
