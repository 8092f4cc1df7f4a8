{{/* Code generated from api/gpu/v1alpha1 by make generate. DO NOT EDIT. */}}

{{/* The kinds of parameters that a class of each type can have. */}}
{{- define "gpu-dra-driver.kindsOfType" -}}
{'gpu': ['GpuConfig', 'ShareConfig'], 'mig': ['MigConfig', 'MigDeviceConfig', 'ShareConfig'], 'timeslice': ['GpuConfig'], 'seat': ['ShareConfig']}
{{- end -}}

{{/* The strategies that a class of each type can have. */}}
{{- define "gpu-dra-driver.strategiesOfType" -}}
{'gpu': ['MPS', 'Plain', 'TimeSlicing'], 'mig': ['MPS', 'Plain', 'TimeSlicing'], 'timeslice': ['TimeSlicing'], 'seat': ['MPS']}
{{- end -}}

{{/* The capacities of the devices of each type. */}}
{{- define "gpu-dra-driver.capacitiesOfType" -}}
{'gpu': ['memory', 'compute'], 'mig': ['memory'], 'timeslice': ['memory', 'slots'], 'seat': ['seats']}
{{- end -}}

{{/* The same in a sentence. */}}
{{- define "gpu-dra-driver.capacitiesInWords" -}}
memory or compute for a GPU, memory for a MIG device, slots or memory for time slices, seats for seats
{{- end -}}

{{/* All kinds of parameters. */}}
{{- define "gpu-dra-driver.kinds" -}}
['GpuConfig', 'MigConfig', 'MigDeviceConfig', 'ShareConfig']
{{- end -}}

{{/* All strategies. */}}
{{- define "gpu-dra-driver.strategies" -}}
['MPS', 'Plain', 'TimeSlicing']
{{- end -}}

{{/* The types of devices of which requests name memory. */}}
{{- define "gpu-dra-driver.typesWithMemory" -}}
['gpu', 'mig', 'timeslice']
{{- end -}}

{{/* The same in a sentence. */}}
{{- define "gpu-dra-driver.typesWithMemoryInWords" -}}
gpu, mig or timeslice
{{- end -}}

{{/* All types of devices. */}}
{{- define "gpu-dra-driver.types" -}}
['gpu', 'mig', 'timeslice', 'seat', 'monitor']
{{- end -}}

{{/* The same in a sentence. */}}
{{- define "gpu-dra-driver.typesInWords" -}}
gpu, mig, timeslice, seat or monitor
{{- end -}}

{{/* The types of devices in JSON: the comment above the DeviceClass, if deviceclasses.yaml makes it, the word of the offer, the value with the number of units, and its flag. */}}
{{- define "gpu-dra-driver.devices" -}}
[
{"type":"gpu","comment":"","needsMPS":false,"offer":"","units":"","flag":""},
{"type":"mig","comment":"","needsMPS":false,"offer":"mig","units":"","flag":""},
{"type":"timeslice","comment":"Time slices of a GPU. A claim without a memory request has no memory limit.","needsMPS":false,"offer":"timeslice","units":"slots","flag":"timeslice-slots"},
{"type":"seat","comment":"Equal seats of a GPU, on nodes that offer them (seat). MPS limits each to its part of\nmemory and compute.","needsMPS":true,"offer":"seat","units":"seats","flag":"seats"},
{"type":"monitor","comment":"All GPUs of a node, for agents that monitor them, on nodes that offer it\n(monitor). Only with adminAccess: true in the request, which the API server\nadmits in namespaces with the label resource.kubernetes.io/admin-access: \"true\".","needsMPS":false,"offer":"monitor","units":"","flag":""}
]
{{- end -}}

{{/* The API group, which begins the names of labels. */}}
{{- define "gpu-dra-driver.group" -}}
gpu.nvidia.com
{{- end -}}

{{/* The names of the labels, in JSON. */}}
{{- define "gpu-dra-driver.labelNames" -}}
{"config": "gpu.nvidia.com/config", "offer": "gpu.nvidia.com/offer", "mIGConfig": "nvidia.com/mig.config", "type": "gpu.nvidia.com/type", "shares": "gpu.nvidia.com/shares", "maxMemory": "gpu.nvidia.com/max-memory", "maxCompute": "gpu.nvidia.com/max-compute", "strategies": "gpu.nvidia.com/strategies", "cordon": "gpu.nvidia.com/cordon", "room": "gpu.nvidia.com/room-for"}
{{- end -}}

{{/* The annotation with the viewers' account. */}}
{{- define "gpu-dra-driver.viewerAccount" -}}
gpu.nvidia.com/viewer-account
{{- end -}}

{{/* The annotation with the namespace of the driver. */}}
{{- define "gpu-dra-driver.driverNamespace" -}}
gpu.nvidia.com/driver-namespace
{{- end -}}

{{/* The labels of a class, after the name of the group. */}}
{{- define "gpu-dra-driver.classLabelNames" -}}
['type', 'shares', 'max-memory', 'max-compute', 'strategies']
{{- end -}}

{{/* The intervals of time slices, separated by commas. */}}
{{- define "gpu-dra-driver.intervals" -}}
'Default', 'Short', 'Medium', 'Long'
{{- end -}}

{{/* The same in a sentence. */}}
{{- define "gpu-dra-driver.intervalsInWords" -}}
Default, Short, Medium or Long
{{- end -}}

{{/* The most processes of a share. */}}
{{- define "gpu-dra-driver.maxProcesses" -}}
48
{{- end -}}

{{/* The most containers of a share. */}}
{{- define "gpu-dra-driver.maxContainers" -}}
64
{{- end -}}

{{/* The fields of each kind of parameters, by section. */}}
{{- define "gpu-dra-driver.fieldsOfKinds" -}}
{
  'gpu.nvidia.com/v1alpha1 GpuConfig': {
    'document': ['apiVersion', 'kind', 'sharing'],
    'sharing': ['strategy', 'timeSlicing', 'mps'],
    'timeSlicing': ['interval'],
    'mps': ['threadPercentage', 'memoryLimit', 'perDevice', 'multiUser'],
    'perDevice': ['device', 'memoryLimit']
  },
  'gpu.nvidia.com/v1alpha1 MigConfig': {
    'document': ['apiVersion', 'kind', 'sharing'],
    'sharing': ['strategy', 'timeSlicing', 'mps'],
    'timeSlicing': ['interval'],
    'mps': ['threadPercentage', 'memoryLimit', 'perDevice', 'multiUser'],
    'perDevice': ['device', 'memoryLimit']
  },
  'gpu.nvidia.com/v1alpha1 ShareConfig': {
    'document': ['apiVersion', 'kind', 'strategy', 'processes', 'compute', 'containers', 'require']
  },
  'resource.nvidia.com/v1beta1 GpuConfig': {
    'document': ['apiVersion', 'kind', 'sharing'],
    'sharing': ['strategy', 'timeSlicingConfig', 'mpsConfig'],
    'timeSlicingConfig': ['interval'],
    'mpsConfig': ['defaultActiveThreadPercentage', 'defaultPinnedDeviceMemoryLimit', 'defaultPerDevicePinnedMemoryLimit', 'multiUser']
  },
  'resource.nvidia.com/v1beta1 MigDeviceConfig': {
    'document': ['apiVersion', 'kind', 'sharing'],
    'sharing': ['strategy', 'mpsConfig'],
    'mpsConfig': ['defaultActiveThreadPercentage', 'defaultPinnedDeviceMemoryLimit', 'defaultPerDevicePinnedMemoryLimit', 'multiUser']
  }
}
{{- end -}}
