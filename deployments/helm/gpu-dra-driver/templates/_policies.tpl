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

{{/* What a class of each type can be configured with, in CEL: kinds of parameters,
     and strategies. */}}
{{- define "gpu-dra-driver.kindsOfType" -}}
{'gpu': ['GpuConfig', 'ShareConfig'], 'mig': ['MigConfig', 'MigDeviceConfig', 'ShareConfig'], 'timeslice': ['GpuConfig']}
{{- end -}}

{{- define "gpu-dra-driver.strategiesOfType" -}}
{'gpu': ['MPS', 'Plain', 'TimeSlicing'], 'mig': ['MPS', 'Plain', 'TimeSlicing'], 'timeslice': ['TimeSlicing']}
{{- end -}}

{{/* The strategy of parameters, in CEL; one that is no text is for
     {{ fullname }}-parameters to refuse. */}}
{{- define "gpu-dra-driver.strategyOf" -}}
({{ . }}.?kind.orValue('') == 'ShareConfig'
  ? ({{ . }}.?strategy.orValue(null) == null || {{ . }}.strategy == '' ? dyn('MPS') : {{ . }}.strategy)
  : type({{ . }}.?sharing.orValue(null)) == map ? {{ . }}.sharing.?strategy.orValue('') : dyn(''))
{{- end -}}
