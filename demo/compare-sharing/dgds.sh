#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints DynamoGraphDeployments that serve Qwen3-4B, each with a frontend and a worker:
#
#	dgds.sh whole-gpu    8 models with a GPU each: the baseline
#	dgds.sh half-gpu     16 models with half of a GPU each
#
# The models' names, programs and arguments are the ones of NVIDIA's experiment, so that its load
# generator finds them. Of the worker, only the claim and the memory fraction differ.
#
# Environment: NODE_NAME (the node with the model cache; required), NAMESPACE (default),
# HF_CACHE_DIR (/opt/hf-cache), FRACTION (--gpu-memory-utilization), MODELS (their number).
set -euo pipefail

claim=${1:?"whole-gpu or half-gpu"}
case $claim in
whole-gpu) models=${MODELS:-8} fraction=${FRACTION:-0.85} ;;
half-gpu) models=${MODELS:-16} fraction=${FRACTION:-0.81} ;;
*) echo "dgds.sh: $claim: want whole-gpu or half-gpu" >&2; exit 2 ;;
esac
node=${NODE_NAME:?"the node with the model cache"}
namespace=${NAMESPACE:-default}
cache=${HF_CACHE_DIR:-/opt/hf-cache}
image=nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.0
revision=1cfa9a7208912126459214e8b04321603b3df60c
model=$cache/hub/models--Qwen--Qwen3-4B/snapshots/$revision

for ((i = 1; i <= models; i++)); do
  name=qwen3-4b-$(printf %02d "$i")
  env="{name: DYN_NAMESPACE, value: $namespace-$name}, {name: DYN_DISCOVERY_BACKEND, value: etcd}, {name: HF_HOME, value: $cache}, {name: HF_HUB_OFFLINE, value: \"1\"}, {name: TRANSFORMERS_OFFLINE, value: \"1\"}"
  cat <<YAML
---
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: $name, namespace: $namespace}
spec:
  backendFramework: vllm
  components:
  - name: Frontend
    type: frontend
    replicas: 1
    podTemplate:
      metadata:
        labels: {experiment.nvidia.com/dgd: $name, experiment.nvidia.com/role: frontend}
      spec:
        nodeSelector: {kubernetes.io/hostname: $node}
        volumes: [{name: model-cache, hostPath: {path: $cache, type: Directory}}]
        containers:
        - name: main
          image: $image
          command: [python3, -m, dynamo.frontend]
          args: [--http-port, "8000"]
          env: [$env]
          volumeMounts: [{name: model-cache, mountPath: $cache, readOnly: true}]
  - name: worker
    type: worker
    replicas: 1
    podTemplate:
      metadata:
        labels: {experiment.nvidia.com/dgd: $name, experiment.nvidia.com/role: worker}
      spec:
        nodeSelector: {kubernetes.io/hostname: $node}
        terminationGracePeriodSeconds: 180
        securityContext: {runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, seccompProfile: {type: RuntimeDefault}}
        volumes: [{name: model-cache, hostPath: {path: $cache, type: Directory}}]
        resourceClaims: [{name: gpu, resourceClaimTemplateName: $claim}]
        containers:
        - name: main
          image: $image
          command: [python3, -m, dynamo.vllm]
          args: [--model, $model, --served-model-name, Qwen/Qwen3-4B, --gpu-memory-utilization, "$fraction", --max-model-len, "4096", --max-num-seqs, "32"]
          env: [$env, {name: DYN_NAMESPACE_WORKER_SUFFIX, value: ""}]
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
          volumeMounts: [{name: model-cache, mountPath: $cache, readOnly: true}]
          resources:
            requests: {cpu: "2", memory: 12Gi}
            limits: {cpu: "8", memory: 32Gi}
            claims: [{name: gpu}]
YAML
done
