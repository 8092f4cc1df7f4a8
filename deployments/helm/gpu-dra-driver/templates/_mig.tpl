{{/* Profiles of MIG devices. */}}

{{/* All profiles of the GPUs that the chart knows, without those of mig.otherProfiles, in JSON:
     of A100 and H100 with 80 GB, A100 with 40 GB, A30, H100 with 94 GB, GH200 with 96 GB, H200,
     B200, GB200 and RTX PRO 6000. A profile that two GPUs have is listed once. */}}
{{- define "gpu-dra-driver.knownProfiles" -}}
[
"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb",
"1g.5gb", "1g.5gb+me", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb",
"1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb",
"1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb",
"3g.48gb", "4g.48gb", "7g.96gb",
"1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb",
"1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb",
"1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb",
"1g.24gb+me", "2g.48gb", "4g.96gb", "1g.24gb+gfx", "2g.48gb+gfx", "4g.96gb+gfx", "1g.24gb-me", "2g.48gb-me", "1g.24gb+me.all", "2g.48gb+me.all"
]
{{- end -}}

{{/* The profiles of common GPUs that nodes offer by default (mig.profiles: common), in JSON: of
     A100 and H100 with 80 GB, A100 with 40 GB, A30, H200 and B200. */}}
{{- define "gpu-dra-driver.commonProfiles" -}}
[
"1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb",
"1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb",
"1g.6gb", "2g.12gb", "4g.24gb",
"1g.18gb", "2g.35gb", "3g.71gb", "7g.141gb",
"1g.23gb", "2g.45gb", "3g.90gb", "7g.180gb"
]
{{- end -}}

{{/* Fails for a profile that no GPU has, for the list (root, value, profiles). It names the known
     profiles with as many slices, because the agent ignores a profile that its GPUs do not have. */}}
{{- define "gpu-dra-driver.checkProfiles" -}}
{{- $root := index . 0 -}}{{- $value := index . 1 -}}
{{- if kindIs "slice" (index . 2) -}}
{{- $known := concat (include "gpu-dra-driver.knownProfiles" $root | fromJsonArray) $root.Values.mig.otherProfiles -}}
{{- range $profile := index . 2 -}}
{{- if not (has $profile $known) -}}
{{- $like := list -}}
{{- range $known }}{{ if hasPrefix (regexFind "^[0-9]+g[.]" $profile | default "none") . }}{{ $like = append $like . }}{{ end }}{{ end -}}
{{- fail (printf "%s: %q is not a known MIG profile; known are: %s. If a newer GPU has it, add it to mig.otherProfiles" $value $profile (join ", " ($like | default $known))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The profiles that have a class, in JSON. */}}
{{- define "gpu-dra-driver.profilesOfClasses" -}}
{{- $profiles := .Values.deviceClasses.migProfiles.profiles -}}
{{- $known := concat (include "gpu-dra-driver.knownProfiles" . | fromJsonArray) .Values.mig.otherProfiles -}}
{{- include "gpu-dra-driver.checkProfiles" (list . "deviceClasses.migProfiles.profiles" $profiles) -}}
{{- if kindIs "slice" $profiles -}}
{{ toJson $profiles }}
{{- else if eq $profiles "all" -}}
{{ toJson (uniq $known) }}
{{- else -}}
{{- $named := concat (include "gpu-dra-driver.commonProfiles" . | fromJsonArray) .Values.mig.otherProfiles -}}
{{- range prepend (values .Values.nodeConfigs) (dict "mig" .Values.mig) -}}
{{- with dig "mig" "profiles" "" (. | default dict) }}{{ if kindIs "slice" . }}{{ $named = concat $named . }}{{ end }}{{ end -}}
{{- end -}}
{{- range dig "mig-configs" dict (include "gpu-dra-driver.layouts" . | fromYaml) -}}
{{- range . }}{{ $named = concat $named (keys (index . "mig-devices" | default dict)) }}{{ end -}}
{{- end -}}
{{- range $class := include "gpu-dra-driver.classesOfClaims" . | fromJsonArray -}}
{{- range $profile := $known }}{{ if eq $class (printf "mig-%s" (replace "+" "." $profile)) }}{{ $named = append $named $profile }}{{ end }}{{ end -}}
{{- end -}}
{{ toJson (uniq $named) }}
{{- end -}}
{{- end -}}

{{/* The names mig-… of classes that claims and claim templates of the cluster have when a release
     is upgraded, in JSON: an upgrade does not remove a class that is in use. */}}
{{- define "gpu-dra-driver.classesOfClaims" -}}
{{- $names := list -}}
{{- if and .Release.IsUpgrade (.Capabilities.APIVersions.Has "resource.k8s.io/v1/ResourceClaim") -}}
{{- range $kind := list "ResourceClaim" "ResourceClaimTemplate" -}}
{{- range (lookup "resource.k8s.io/v1" $kind "" "").items -}}
{{- range regexFindAll "\"deviceClassName\":\"mig-[^\"]+" (toJson .spec) -1 -}}
{{- $names = append $names (trimPrefix "\"deviceClassName\":\"" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson (uniq $names) }}
{{- end -}}
