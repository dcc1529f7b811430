package integration

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestInvalidObjects: the API server refuses invalid objects with a message that names the field.
func TestInvalidObjects(t *testing.T) {
	t.Parallel()
	env, namespace := newHubEnv(t)
	const pool = "{name: p, machineConfigRef: {apiVersion: i.io/v1, kind: KTemplate, name: m}, workerRole: true}"
	for _, tt := range []struct {
		name string
		// object is YAML without metadata.namespace.
		object string
		// want is part of the error; empty means that it is accepted.
		want string
	}{
		{name: "the least", object: cluster("a1", "{}")},
		{name: "nulls as the UI writes them",
			object: cluster("a2", `{chartValues: null, machineSelectorConfig: [{config: null, machineLabelSelector: null}],
			machineGlobalConfig: {}, etcd: {s3: null}, etcdSnapshotCreate: null, etcdSnapshotRestore: null,
			rotateCertificates: null, registries: {configs: {}, mirrors: null},
			additionalManifest: null, upgradeStrategy: {controlPlaneConcurrency: "1",
				controlPlaneDrainOptions: {enabled: false, postDrainHooks: null, preDrainHooks: null}},
			machineSelectorFiles: [{fileSources: [{secret: {name: s, items: null}, configMap: {name: ""}}]}], dataDirectories: {}}`)},
		{name: "pool", object: cluster("a3", "{machinePools: ["+pool+"]}")},
		{name: "name too long", object: cluster(strings.Repeat("a", 64), "{}"), want: "metadata.name"},
		{name: "name of a management cluster", object: cluster("c-m-abcdefgh", "{}"), want: "metadata.name: names like c-abcde"},
		{name: "name local", object: cluster("local", "{}"), want: "metadata.name: the name local"},
		{name: "no version", object: `{apiVersion: provisioning.cattle.io/v1, kind: Cluster, metadata: {name: b1}, spec: {rkeConfig: {}}}`,
			want: "spec.kubernetesVersion"},
		{name: "pool without reference", object: cluster("b2", "{machinePools: [{name: p, workerRole: true}]}"),
			want: "spec.rkeConfig.machinePools[].machineConfigRef is required"},
		{name: "pool with half a reference", object: cluster("b3", "{machinePools: [{name: p, workerRole: true, machineConfigRef: {kind: K}}]}"),
			want: "spec.rkeConfig.machinePools[].machineConfigRef is required"},
		{name: "pool without a role", object: cluster("b4",
			"{machinePools: [{name: p, machineConfigRef: {apiVersion: i.io/v1, kind: KTemplate, name: m}}]}"),
			want: "at least one of etcdRole, controlPlaneRole and workerRole"},
		{name: "pool without a name", object: cluster("b5",
			"{machinePools: [{workerRole: true, machineConfigRef: {apiVersion: i.io/v1, kind: KTemplate, name: m}}]}"),
			want: "spec.rkeConfig.machinePools[0].name"},
		{name: "two pools of a name", object: cluster("b6", "{machinePools: ["+pool+","+pool+"]}"), want: "spec.rkeConfig.machinePools[1]"},
		{name: "half an autoscaler", object: cluster("b7",
			"{machinePools: [{name: p, machineConfigRef: {apiVersion: i.io/v1, kind: KTemplate, name: m}, workerRole: true, "+
				"autoscalingMinSize: 1}]}"), want: "autoscalingMaxSize"},
		{name: "autoscaler upside down",
			object: cluster("b8", "{machinePools: [{name: p, machineConfigRef: {apiVersion: i.io/v1, kind: KTemplate, name: m}, workerRole: "+
				"true, autoscalingMinSize: 3, autoscalingMaxSize: 1}]}"), want: "must not be greater"},
		{name: "etcd scaled to nothing",
			object: cluster("b9", "{machinePools: [{name: p, machineConfigRef: {apiVersion: i.io/v1, kind: KTemplate, name: m}, etcdRole: true, "+
				"autoscalingMinSize: 0, autoscalingMaxSize: 1}]}"), want: "greater than 0"},
		{name: "etcd on windows", object: cluster("b10",
			"{machinePools: [{name: p, machineConfigRef: {apiVersion: i.io/v1, kind: KTemplate, name: m}, etcdRole: true, machineOS: windows}]}"),
			want: "windows machines can only be workers"},
		{name: "machine configuration of a node driver",
			object: cluster("a24", "{machinePools: [{name: p, workerRole: true, machineConfigRef: {apiVersion: rke-machine-config.cattle.io/v1, "+
				"kind: Amazonec2Config, name: m}}]}")},
		{name: "machine configuration as the UI names it",
			object: cluster("a25", "{machinePools: [{name: p, workerRole: true, machineConfigRef: {kind: Amazonec2Config, name: m}}]}")},
		{name: "machine configuration of a core kind",
			object: cluster("b25", "{machinePools: [{name: p, workerRole: true, machineConfigRef: {apiVersion: v1, kind: Pod, name: m}}]}"),
			want:   "machineConfigRef.apiVersion must be that of a machine template"},
		{name: "infrastructure without a group", object: cluster("b26", "{infrastructureRef: {kind: K, name: i}}"),
			want: "spec.rkeConfig.infrastructureRef needs apiVersion"},
		{name: "pool with nulls", object: cluster("a5",
			withPool("quantity: null, labels: null, taints: null, nodeStartupTimeout: null, unhealthyNodeTimeout: null, maxUnhealthy: null, "+
				"unhealthyRange: null, rollingUpdate: {maxSurge: null}, drainBeforeDeleteTimeout: null"))},
		{name: "pool with health checks",
			object: cluster("a6", withPool(`nodeStartupTimeout: 0s, unhealthyNodeTimeout: 5m, maxUnhealthy: 40%, unhealthyRange: "[1-3]", rollingUpdate: {maxSurge: 0, maxUnavailable: 25%}`))},
		{name: "pool with empty texts", object: cluster("a7", withPool(`maxUnhealthy: "", unhealthyRange: "", nodeStartupTimeout: "0"`))},
		{name: "no duration", object: cluster("b27", withPool("unhealthyNodeTimeout: 5 minutes")), want: "must be a duration such as 10m"},
		{name: "no duration of a drain", object: cluster("b28", withPool("drainBeforeDeleteTimeout: -5m")),
			want: "must be a duration such as 10m"},
		{name: "longer than can be counted", object: cluster("b28h", withPool("drainBeforeDeleteTimeout: 2562048h")),
			want: "must be a duration such as 10m"},
		{name: "parts whose sum is longer", object: cluster("b28s", withPool("unhealthyNodeTimeout: 9999999h1s")),
			want: "must be a duration such as 10m"},
		{name: "quantities", object: withAgentLimit("a28", "1.5e3")},
		{name: "quantity with a long exponent", object: withAgentLimit("b28q", "1e-1000000000"), want: "limits"},
		{name: "quantity that is none", object: withAgentLimit("b28e", "1e1.5"), want: "limits"},
		{name: "number of 64 bits", object: cluster("b28n", withPool("rollingUpdate: {maxSurge: 3000000000}")), want: "maxSurge"},
		{name: "startup too short", object: cluster("b29", withPool("nodeStartupTimeout: 20s")), want: "nodeStartupTimeout must be at least 30s"},
		{name: "no number of unhealthy machines", object: cluster("b30", withPool("maxUnhealthy: some")),
			want: "maxUnhealthy must be a number such as 2"},
		{name: "no range of unhealthy machines", object: cluster("b31", withPool("unhealthyRange: 1-3")),
			want: "unhealthyRange must be a range in brackets such as [1-3]"},
		{name: "rolling update that cannot move", object: cluster("b32", withPool("rollingUpdate: {maxSurge: 0, maxUnavailable: 0}")),
			want: "cannot both be 0"},
		{name: "hostname limit too short", object: cluster("b33", withPool("hostnameLengthLimit: 5")), want: "hostnameLengthLimit"},
		{name: "negative quantity", object: cluster("b34", withPool("quantity: -1")), want: "machinePools[0].quantity"},
		{name: "file source that is both",
			object: cluster("b11", "{machineSelectorFiles: [{fileSources: [{secret: {name: a}, configMap: {name: b}}]}]}"),
			want:   "exactly one of secret and configMap"},
		{name: "file source that is neither", object: cluster("b12", "{machineSelectorFiles: [{fileSources: [{}]}]}"),
			want: "exactly one of secret and configMap"},
		{name: "relative data directory", object: cluster("b13", "{dataDirectories: {systemAgent: data}}"),
			want: "spec.rkeConfig.dataDirectories.systemAgent"},
		{name: "unclean data directory", object: cluster("b14", "{dataDirectories: {systemAgent: /data/../etc}}"),
			want: "spec.rkeConfig.dataDirectories.systemAgent"},
		{name: "nested data directories", object: cluster("b15", "{dataDirectories: {systemAgent: /data, k8sDistro: /data/k}}"),
			want: "must not lie within one another"},
		{name: "data directory of the agent near the root", object: cluster("b35", "{dataDirectories: {systemAgent: /data}}"),
			want: "systemAgent must be at least two levels deep"},
		{name: "hidden data directory", object: cluster("a4", "{dataDirectories: {systemAgent: /opt/.agent, k8sDistro: /opt/.agent2}}")},
		{name: "unknown service", object: cluster("b16", "{rotateCertificates: {generation: 1, services: [nothing]}}"),
			want: "spec.rkeConfig.rotateCertificates.services"},
		{name: "agent's folder as variable", object: withEnv("b17", "CATTLE_AGENT_VAR_DIR", "/x"),
			want: "spec.rkeConfig.dataDirectories.systemAgent"},
		{name: "white space in NO_PROXY", object: withEnv("b18", "NO_PROXY", "a, b"), want: "NO_PROXY must not contain white space"},
		{name: "certificates for no name",
			object: `{apiVersion: provisioning.cattle.io/v1, kind: Cluster, metadata: {name: b19}, spec: {kubernetesVersion: v1, rkeConfig: {}, localClusterAuthEndpoint: {caCerts: x}}}`, want: "localClusterAuthEndpoint.fqdn"},
		{name: "two versions", object: `{apiVersion: rke.cattle.io/v1, kind: RKEControlPlane, metadata: {name: b20}, spec: {version: v1, kubernetesVersion: v2}}`, want: "the same thing"},
		{name: "control plane that makes machines",
			object: `{apiVersion: rke.cattle.io/v1, kind: RKEControlPlane, metadata: {name: b24}, spec: {version: v1, replicas: 3}}`,
			want:   "spec.replicas"},
		{name: "control plane with a template",
			object: `{apiVersion: rke.cattle.io/v1, kind: RKEControlPlane, metadata: {name: b25}, spec: {version: v1, machineTemplate: {}}}`,
			want:   "spec.machineTemplate"},
		{name: "control plane with a rollout",
			object: `{apiVersion: rke.cattle.io/v1, kind: RKEControlPlane, metadata: {name: b26}, spec: {version: v1, rollout: {after: "2026-01-01T00:00:00Z"}}}`, want: "spec.rollout"},
		{name: "template of control planes", object: controlPlaneTemplate("a40", "{agentEnvVars: [{name: A, value: a}]}")},
		{name: "template of control planes that make machines", object: controlPlaneTemplate("b60", "{machineTemplate: {}}"),
			want: "spec.template.spec.machineTemplate"},
		{name: "template of control planes with a rollout", object: controlPlaneTemplate("b61", "{rollout: {}}"),
			want: "spec.template.spec.rollout"},
		{name: "endpoint of a control plane", object: infraCluster("a50", "{host: lb.example.com, port: 6443}")},
		{name: "endpoint with an IPv6 address", object: infraCluster("a51", `{host: "2001:db8::1", port: 443}`)},
		{name: "no endpoint", object: infraCluster("a52", "{}")},
		{name: "endpoint that is a URL", object: infraCluster("b62", `{host: "https://lb.example.com", port: 6443}`),
			want: "spec.controlPlaneEndpoint.host"},
		{name: "port in the host of an endpoint", object: infraCluster("b63", `{host: "lb.example.com:6443", port: 6443}`),
			want: "the port goes into controlPlaneEndpoint.port"},
		{name: "address with a port in the host of an endpoint", object: infraCluster("b64", `{host: "10.0.0.1:6443", port: 6443}`),
			want: "spec.controlPlaneEndpoint.host"},
		{name: "endpoint without a port", object: infraCluster("b65", "{host: lb.example.com}"), want: "needs host and port"},
		{name: "endpoint without a host", object: infraCluster("b66", "{port: 6443}"), want: "needs host and port"},
		{name: "endpoint without a port of a control plane",
			object: controlPlane("b67", "{version: v1.36.3+k3s1, controlPlaneEndpoint: {host: lb.example.com}}"), want: "needs host and port"},
		{name: "token without a cluster",
			object: `{apiVersion: management.cattle.io/v3, kind: ClusterRegistrationToken, metadata: {name: b21}, spec: {}}`,
			want:   "spec.clusterName"},
		{name: "token that lives too short",
			object: `{apiVersion: management.cattle.io/v3, kind: ClusterRegistrationToken, metadata: {name: b22}, spec: {clusterName: c, ttl: 5}}`,
			want:   "at least 30 minutes"},
		{name: "grace period too long",
			object: `{apiVersion: management.cattle.io/v3, kind: ClusterRegistrationToken, metadata: {name: b23}, spec: {clusterName: c, ttl: 30, gracePeriod: 30}}`, want: "must be shorter"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			object := parse(t, tt.object)
			object.SetNamespace(namespace)
			err := env.Client.Create(t.Context(), object, client.DryRunAll)
			check(t, err, tt.want)
		})
	}
}

// TestImmutableFields: the API server refuses changes of immutable fields.
func TestImmutableFields(t *testing.T) {
	t.Parallel()
	env, namespace := newHubEnv(t)
	const infrastructure = "{apiVersion: i.io/v1, kind: KCluster, name: c}"
	for _, tt := range []struct {
		name, before, after, want string
	}{
		{name: "rkeConfig removed", before: cluster("a", "{}"), after: bare("a"), want: "spec.rkeConfig cannot be added"},
		{name: "rkeConfig added", before: bare("b"), after: cluster("b", "{}"), want: "spec.rkeConfig cannot be added"},
		{name: "spec with rkeConfig removed", before: cluster("k", "{}"), after: withoutSpec("k"), want: "spec.rkeConfig cannot be added"},
		{name: "spec with rkeConfig added", before: withoutSpec("l"), after: cluster("l", "{}"), want: "spec.rkeConfig cannot be added"},
		{name: "spec of an imported cluster removed", before: bare("m"), after: withoutSpec("m")},
		{name: "spec of a control plane removed", before: controlPlane("q", "{version: v1.36.3+k3s1}"), after: controlPlane("q", "null"),
			want: "spec cannot be removed"},
		{name: "control plane without spec", before: controlPlane("r", "null"), after: controlPlane("r", "null")},
		{name: "spec of a control plane added", before: controlPlane("s", "null"), after: controlPlane("s", "{version: v1.36.3+k3s1}")},
		{name: "data directory set", before: cluster("c", "{}"), after: cluster("c", "{dataDirectories: {k8sDistro: /data}}"),
			want: "dataDirectories.k8sDistro cannot be changed"},
		{name: "data directory removed", before: cluster("d", "{dataDirectories: {k8sDistro: /data}}"), after: cluster("d", "{}"),
			want: "dataDirectories.k8sDistro cannot be changed"},
		{name: "data directory moved", before: cluster("e", "{dataDirectories: {systemAgent: /data/agent}}"),
			after: cluster("e", "{dataDirectories: {systemAgent: /date/agent}}"), want: "dataDirectories.systemAgent cannot be changed"},
		{name: "infrastructure added", before: cluster("g", "{}"), after: cluster("g", "{infrastructureRef: "+infrastructure+"}"),
			want: "spec.rkeConfig.infrastructureRef cannot be added"},
		{name: "infrastructure removed", before: cluster("h", "{infrastructureRef: "+infrastructure+"}"), after: cluster("h", "{}"),
			want: "spec.rkeConfig.infrastructureRef cannot be added"},
		{name: "infrastructure corrected", before: cluster("i", "{infrastructureRef: {apiVersion: i.io/v1, kind: KCluster, name: typo}}"),
			after: cluster("i", "{infrastructureRef: "+infrastructure+"}")},
		{name: "no infrastructure", before: cluster("j", "{infrastructureRef: null}"), after: cluster("j", "{}")},
		{name: "machine of a snapshot named later", before: snapshotSave("t", ""), after: snapshotSave("t", ", machineName: m"),
			want: "machineName cannot be changed"},
		{name: "machine of a snapshot removed", before: snapshotSave("u", ", machineName: m"), after: snapshotSave("u", ""),
			want: "machineName cannot be changed"},
		{name: "arguments of a snapshot set later", before: snapshotSave("v", ""), after: snapshotSave("v", ", args: {name: other}"),
			want: "args cannot be changed"},
		{name: "arguments of a snapshot changed", before: snapshotSave("w", ", args: {etcd_snapshot_dir: /a}"),
			after: snapshotSave("w", ", args: {etcd_snapshot_dir: /b}"), want: "args cannot be changed"},
		{name: "no arguments of a snapshot", before: snapshotSave("x", ""), after: snapshotSave("x", ", paused: true, args: {}")},
		{name: "empty data directories", before: cluster("f", "{}"), after: cluster("f", "{dataDirectories: {}}")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, after := parse(t, tt.before), parse(t, tt.after)
			name := "change-" + before.GetName()
			before.SetNamespace(namespace)
			before.SetName(name)
			// Nobody else shall touch it in between.
			before.SetAnnotations(map[string]string{"cluster.x-k8s.io/paused": ""})
			env.create(t, before)
			until(t, "the change to be judged", func() error {
				env.get(t, namespace, name, before)
				after.SetNamespace(namespace)
				after.SetName(name)
				after.SetAnnotations(before.GetAnnotations())
				after.SetResourceVersion(before.GetResourceVersion())
				err := env.Client.Update(t.Context(), after, client.DryRunAll)
				if err != nil && strings.Contains(err.Error(), "the object has been modified") {
					return err
				}
				check(t, err, tt.want)
				return nil
			})
		})
	}
}

func check(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("accepted; want it refused with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("refused with %q, want %q in it", err, want)
	}
}

func cluster(name, config string) string {
	return `{apiVersion: provisioning.cattle.io/v1, kind: Cluster, metadata: {name: ` + name +
		`}, spec: {kubernetesVersion: v1.36.3+k3s1, rkeConfig: ` + config + `}}`
}

// withPool returns a configuration of one pool with additional fields.
func withPool(fields string) string {
	return `{machinePools: [{name: p, workerRole: true, machineConfigRef: {apiVersion: i.io/v1, kind: KTemplate, name: m}, ` + fields + `}]}`
}

func bare(name string) string {
	return `{apiVersion: provisioning.cattle.io/v1, kind: Cluster, metadata: {name: ` + name + `}, spec: {kubernetesVersion: v1.36.3+k3s1}}`
}

func withoutSpec(name string) string {
	return `{apiVersion: provisioning.cattle.io/v1, kind: Cluster, metadata: {name: ` + name + `}}`
}

func controlPlane(name, spec string) string {
	return `{apiVersion: rke.cattle.io/v1, kind: RKEControlPlane, metadata: {name: ` + name + `}, spec: ` + spec + `}`
}

func infraCluster(name, endpoint string) string {
	return `{apiVersion: rke.cattle.io/v1, kind: RKECluster, metadata: {name: ` + name + `}, spec: {controlPlaneEndpoint: ` + endpoint + `}}`
}

func snapshotSave(name, fields string) string {
	return `{apiVersion: operation.cattle.io/v1alpha1, kind: ETCDSnapshotSave, metadata: {name: ` + name + `}, spec: {ttl: -1, ` +
		`clusterRef: {apiVersion: provisioning.cattle.io/v1, kind: Cluster, name: nowhere}` + fields + `}}`
}

func withEnv(name, variable, value string) string {
	return `{apiVersion: provisioning.cattle.io/v1, kind: Cluster, metadata: {name: ` + name +
		`}, spec: {kubernetesVersion: v1.36.3+k3s1, rkeConfig: {}, agentEnvVars: [{name: ` + variable + `, value: "` + value + `"}]}}`
}

func withAgentLimit(name, cpu string) string {
	return `{apiVersion: provisioning.cattle.io/v1, kind: Cluster, metadata: {name: ` + name +
		`}, spec: {kubernetesVersion: v1.36.3+k3s1, rkeConfig: {}, clusterAgentDeploymentCustomization: {overrideResourceRequirements: ` +
		`{limits: {cpu: "` + cpu + `", memory: 4294967296}}}}}`
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(text, "\t", " ")))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func controlPlaneTemplate(name, spec string) string {
	return `{apiVersion: rke.cattle.io/v1, kind: RKEControlPlaneTemplate, metadata: {name: ` + name + `}, spec: {template: {spec: ` + spec +
		`}}}`
}
