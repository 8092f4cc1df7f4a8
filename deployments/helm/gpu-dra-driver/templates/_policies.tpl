{{/* The labels of a DeviceClass that {{ fullname }}-requests reads, for the list (root,
     class, type, extended resource): its type, and its limits in policies.classes.
     Limits that {{ fullname }}-classes would refuse, and the schema of the values does
     not, fail here: such a class could be installed before the policies, and then not
     be upgraded. */}}
{{- define "gpu-dra-driver.classLabels" -}}
{{- $root := index . 0 -}}{{- $class := index . 1 -}}
{{- $policy := index ($root.Values.policies.classes | default dict) $class | default dict -}}
{{- $limited := or (hasKey $policy "max-memory") (hasKey $policy "max-compute") -}}
{{- if and $limited (eq ($policy.shares | default "") "none") -}}
{{- fail (printf "policies.classes.%s: shares: none (whole devices only) cannot be combined with max-memory or max-compute: set shares to only, or to null" $class) -}}
{{- end -}}
{{- if and (hasKey $policy "max-compute") (not (hasKey $policy "max-memory")) -}}
{{- fail (printf "policies.classes.%s: max-compute needs max-memory: a request for all of the memory gets the whole device with all of its compute" $class) -}}
{{- end -}}
{{- if and (index . 3) (or $limited (eq ($policy.shares | default "") "only")) -}}
{{- fail (printf "policies.classes.%s: its extended resource (%s) is for whole devices, and the class has only shares: empty its extendedResource or extendedResourcePrefix in deviceClasses" $class (index . 3)) -}}
{{- end -}}
{{- include "gpu-dra-driver.labels" $root }}
{{ include "gpu-dra-driver.group" $root }}/type: {{ index . 2 }}
{{- range $label, $value := $policy }}
{{ include "gpu-dra-driver.group" $root }}/{{ $label }}: {{ $value | toString | quote }}
{{- end }}
{{- end -}}

{{/* The strategy of parameters, in CEL. {{ fullname }}-parameters refuses one that
     is not a string. */}}
{{- define "gpu-dra-driver.strategyOf" -}}
({{ . }}.?kind.orValue('') == 'ShareConfig'
  ? ({{ . }}.?strategy.orValue(null) == null || {{ . }}.strategy == '' ? dyn('MPS') : {{ . }}.strategy)
  : type({{ . }}.?sharing.orValue(null)) == map ? {{ . }}.sharing.?strategy.orValue('') : dyn(''))
{{- end -}}

{{/* An extended resource, for the list (names that classes of the chart serve already,
     name, value of the class). Kubernetes lets the newer of two classes serve a name, and
     none if one of them is deleted, so a second class fails here. */}}
{{- define "gpu-dra-driver.serve" -}}
{{- $served := index . 0 -}}{{- $name := index . 1 -}}{{- $class := index . 2 -}}
{{- if hasKey $served $name -}}
{{- fail (printf "deviceClasses.%[1]s: deviceClasses.%[3]s serves the extended resource %[2]s already, and only one class can serve a name: change or empty one of the two" $class $name (get $served $name)) -}}
{{- end -}}
{{- $_ := set $served $name $class -}}
{{- $name -}}
{{- end -}}
