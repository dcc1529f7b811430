{{- /* Names of objects are fixed: a cluster has one hub, since it has one set of definitions and webhooks. */ -}}

{{- define "drover.selector" -}}
app.kubernetes.io/name: drover
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: hub
{{- end }}

{{- define "drover.labels" -}}
{{ include "drover.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end }}

{{- define "drover.metadata" -}}
namespace: {{ .Release.Namespace }}
labels: {{- include "drover.labels" . | nindent 2 }}
{{- end }}

{{- define "drover.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}
{{- else }}{{ .repository }}:{{ .tag | default ($.Chart.AppVersion | replace "+" "-") }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Host of serverURL, without its port and the brackets of an IPv6 address. */ -}}
{{- define "drover.host" -}}
{{- (urlParse .Values.serverURL).host | regexFind "^(\\[.*\\]|[^:]*)" | trimAll "[]" -}}
{{- end }}

{{- define "drover.port" -}}
{{- (urlParse .Values.serverURL).host | regexFind ":[0-9]+$" | trimPrefix ":" | default "443" -}}
{{- end }}

{{- /* The Secret with the authority of the gateway; empty for one of the hub's own. */ -}}
{{- define "drover.caSecret" -}}
{{- if ne .Values.tls.source "self" }}{{ .Values.tls.secretName | default "drover-gateway-ca" }}{{ end -}}
{{- end }}

{{- /* The flags of hub serve, one a line. A test of hub/cli compares them with those that there are. */ -}}
{{- define "drover.args" -}}
- --server-url={{ .Values.serverURL }}
- --system-namespace={{ .Release.Namespace }}
- --listen=:8443
- --webhook-listen=:9443
- --owner-cluster-role={{ (.Files.Get "files/hub.yaml" | fromYaml).metadata.name }}
- --data-dir=/var/lib/drover/hub
- --health-listen=:9440
{{- if .Values.metrics.enabled }}
- --metrics-listen=:9441
{{- end }}
- --capi={{ .Values.capi }}
- --log-level={{ .Values.logLevel }}
- --log-format={{ .Values.logFormat }}
- --drain-delay={{ .Values.drainDelaySeconds }}s
- --drain-time={{ .Values.drainTimeSeconds }}s
- --installer-image={{ .Values.installerImage }}
- --rke2-prime={{ .Values.rke2Prime }}
{{- if include "drover.caSecret" . }}
- --gateway-ca-secret={{ include "drover.caSecret" . }}
{{- end }}
- --node-driver-image={{ .Values.nodeDriverImage | default (include "drover.image" .) }}
{{- with .Values.imagePullSecrets }}
- --node-driver-image-pull-secrets={{ range $i, $secret := . }}{{ if $i }},{{ end }}{{ $secret.name }}{{ end }}
{{- end }}
{{- $scheduling := dict }}
{{- range $key := list "nodeSelector" "tolerations" "priorityClassName" }}
{{- with get $.Values $key }}
{{- $_ := set $scheduling $key . }}
{{- end }}
{{- end }}
{{- with $scheduling }}
- --node-driver-scheduling={{ toJson . }}
{{- end }}
{{- with .Values.systemDefaultRegistry }}
- --system-default-registry={{ . }}
{{- end }}
{{- with .Values.systemDefaultRegistryPullSecrets }}
- --system-default-registry-pull-secrets={{ join "," . }}
{{- end }}
{{- with .Values.clusterAgentImage }}
- --cluster-agent-image={{ . }}
{{- end }}
{{- with .Values.releaseData }}
- --release-data={{ . }}
{{- end }}
{{- with .Values.auditLog }}
{{- if .path }}
- --audit-log-path={{ .path }}
- --audit-log-maxage={{ .maxAge }}
- --audit-log-maxbackup={{ .maxBackup }}
- --audit-log-maxsize={{ .maxSize }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What the schema cannot express. */ -}}
{{- define "drover.validate" -}}
{{- with .Values -}}
{{- $_ := required "serverURL: must be the URL at which machines reach the hub, such as https://hub.example.com" .serverURL -}}
{{- if and .exposure.nodePort (ne .exposure.type "nodePort") -}}
{{- fail (printf "exposure.nodePort: is for exposure.type nodePort, not %s" .exposure.type) -}}
{{- end -}}
{{- if and (eq .exposure.type "gateway") (not .exposure.gateway.parentRefs) -}}
{{- fail "exposure.gateway.parentRefs: must name a Gateway, such as [{name: shared, namespace: gateways}]" -}}
{{- end -}}
{{- if and (has .exposure.type (list "ingress" "gateway")) (regexMatch "^[0-9.]+$|:" (include "drover.host" $)) -}}
{{- fail (printf "serverURL: must have a DNS name for exposure.type %s, got %s" .exposure.type .serverURL) -}}
{{- end -}}
{{- if and (eq .tls.source "secret") (not .tls.secretName) -}}
{{- fail "tls.secretName: must name the Secret with the certificate authority for tls.source secret" -}}
{{- end -}}
{{- if and (eq .tls.source "self") .tls.secretName -}}
{{- fail "tls.secretName: is for tls.source secret and certManager, not self" -}}
{{- end -}}
{{- if eq .tls.secretName "drover-gateway-tls" -}}
{{- fail "tls.secretName: must not be drover-gateway-tls, which the hub writes" -}}
{{- end -}}
{{- if ne (eq .tls.source "certManager") (ne .tls.issuerRef.name "") -}}
{{- fail "tls.issuerRef.name: must name the issuer for tls.source certManager, and is for that only" -}}
{{- end -}}
{{- if and .metrics.serviceMonitor.enabled (not .metrics.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled: needs metrics.enabled=true" -}}
{{- end -}}
{{- if and .networkPolicy.metricsFrom (not (and .networkPolicy.enabled .metrics.enabled)) -}}
{{- fail "networkPolicy.metricsFrom: needs networkPolicy.enabled=true and metrics.enabled=true" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* The arguments of the container. One of extraArgs that the chart sets, too, is an error. */ -}}
{{- define "drover.allArgs" -}}
{{- $args := include "drover.args" . | fromYamlArray -}}
{{- $set := dict -}}
{{- range $args }}{{ $_ := set $set (. | splitList "=" | first) true }}{{ end -}}
{{- range .Values.extraArgs -}}
{{- $flag := . | splitList "=" | first -}}
{{- if hasKey $set $flag }}{{ fail (printf "extraArgs: %s is set by the chart; use its value, see values.yaml" $flag) }}{{ end -}}
{{- end -}}
{{- toYaml (concat (list "serve") $args .Values.extraArgs) -}}
{{- end }}
