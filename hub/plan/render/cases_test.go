package render

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/plans"
)

const (
	k3s  = "v1.36.3+k3s1"
	rke2 = "v1.36.3+rke2r1"
)

// machineOf is what a plan is made of for one machine of a cluster of which nothing is said; all but the init node join 10.0.0.9.
func machineOf(t testing.TB, version, name, roles string) Inputs {
	in := Inputs{Cluster: cluster(t, version), Machine: node(name, roles)}
	if !in.Machine.Init {
		in.JoinURL = JoinURL(in.Cluster, "10.0.0.9")
	}
	return in
}

// goldenCases are the inputs whose plans people read in testdata.
func goldenCases(t testing.TB) map[string]Inputs {
	cases := map[string]Inputs{
		"k3s-single-node":       machineOf(t, k3s, "a", "ecwi"),
		"k3s-server-that-joins": machineOf(t, k3s, "b", "ecw"),
		"k3s-worker":            machineOf(t, k3s, "w", "w"),
		"k3s-etcd":              machineOf(t, k3s, "e", "e"),
		"k3s-etcd-first":        machineOf(t, k3s, "e", "ei"),
		"k3s-control-plane":     machineOf(t, k3s, "c", "c"),
		"k3s-etcd-worker":       machineOf(t, k3s, "e", "ew"),
		"k3s-control-worker":    machineOf(t, k3s, "c", "cw"),
		"rke2-single":           machineOf(t, rke2, "a", "ecwi"),
		"rke2-server":           machineOf(t, rke2, "b", "ec"),
		"rke2-control-plane":    machineOf(t, rke2, "c", "c"),
		"rke2-worker":           machineOf(t, rke2, "w", "w"),
		"rke2-etcd":             machineOf(t, rke2, "e", "ei"),
		"rke2-etcd-that-joins":  machineOf(t, rke2, "e", "e"),
		"no-role":               machineOf(t, k3s, "n", ""),
		"everything-set":        everything(t, k3s),
		"everything-set-rke2":   everything(t, rke2),
		"everything-broken":     broken(t, k3s),
	}
	for _, more := range []map[string]func(*Inputs) (version, roles string){
		clusterCases(t), addressCases(t), registryCases(), argumentCases(t), windowsCases(t), removalCases(t),
	} {
		for _, name := range slices.Sorted(maps.Keys(more)) {
			// What a case changes does not depend on what it is given, so that it can be asked for version and roles first.
			scratch := machineOf(t, k3s, "a", "ecwi")
			version, roles := more[name](&scratch)
			in := machineOf(t, version, "a", roles)
			more[name](&in)
			if _, twice := cases[name]; twice {
				t.Fatalf("two cases are called %s", name)
			}
			cases[name] = in
		}
	}
	return cases
}

func clusterCases(t testing.TB) map[string]func(*Inputs) (string, string) {
	return map[string]func(*Inputs) (string, string){
		"adopted-cluster-without-ca": func(in *Inputs) (string, string) {
			in.Cluster.CA = CA{}
			return k3s, "ecwi"
		},
		"data-directories": func(in *Inputs) (string, string) {
			in.Cluster.Spec.DataDirectories = rkev1.DataDirectories{SystemAgent: "/data/agent", Provisioning: "/data/capr", K8sDistro: "/data/rke2"}
			return rke2, "ecw"
		},
		"data-directory-by-argument": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"data-dir": "/srv/k3s"}`)
			return k3s, "w"
		},
		"auth-endpoint-k3s": func(in *Inputs) (string, string) {
			in.Cluster.Spec.LocalClusterAuthEndpoint = rkev1.LocalClusterAuthEndpoint{Enabled: true, FQDN: "api.example.com"}
			return k3s, "ecw"
		},
		"auth-endpoint-rke2-ipv6": func(in *Inputs) (string, string) {
			in.Cluster.Spec.LocalClusterAuthEndpoint.Enabled = true
			in.Cluster.Spec.Networking = &rkev1.Networking{StackPreference: "ipv6"}
			return rke2, "c"
		},
		"cluster-agent": func(in *Inputs) (string, string) {
			in.Cluster.Settings = settings.Settings{ServerURL: "https://hub.example:8443", CACerts: []byte("hub ca\n"),
				ClusterAgentImage: "drover/cluster-agent:v1"}
			in.Cluster.Agent = &Agent{Token: "id.secret", Replicas: 2,
				ControlPlaneTaints: []corev1.Taint{{Key: "dedicated", Value: "cp", Effect: corev1.TaintEffectNoSchedule}}}
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"system-default-registry": "registry.example.com"}`)
			in.Cluster.Spec.AgentEnvVars = []rkev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy:3128"},
				{Name: "CATTLE_SERVER", Value: "https://other"}}
			in.Cluster.Spec.ClusterAgentDeploymentCustomization = &rkev1.AgentDeploymentCustomization{
				AppendTolerations: []corev1.Toleration{{Key: "a", Operator: "Exists"}, {Key: "b", Operator: "Like"}},
			}
			return rke2, "ec"
		},
		"cluster-agent-auth-endpoint": func(in *Inputs) (string, string) {
			in.Cluster.Settings = settings.Settings{ServerURL: "https://hub.example:8443"}
			in.Cluster.Agent = &Agent{Token: "id.secret", Replicas: 1, PublicKeys: []byte(`{"keys":[]}`)}
			in.Cluster.Spec.LocalClusterAuthEndpoint.Enabled = true
			in.Cluster.CA = CA{}
			return k3s, "ecw"
		},
		"cluster-agent-not-on-workers": func(in *Inputs) (string, string) {
			in.Cluster.Agent = &Agent{Token: "id.secret", Replicas: 1}
			return k3s, "ew"
		},
		"cluster-agent-kept": func(in *Inputs) (string, string) {
			in.Delivered.Files = []plans.File{{Path: "/var/lib/rancher/k3s/server/manifests/rancher/cluster-agent.yaml", Content: "YWdlbnQK",
				Dynamic: true, Minor: true}}
			return k3s, "ecw"
		},
		"auth-endpoint-of-the-users-own": func(in *Inputs) (string, string) {
			in.Cluster.Spec.LocalClusterAuthEndpoint.Enabled = true
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"kube-apiserver-arg": ["authentication-token-webhook-config-file=/etc/mine"]}`)
			return rke2, "c"
		},
		"s3-with-credential": func(in *Inputs) (string, string) {
			in.Cluster.Spec.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{CloudCredentialName: "cattle-global-data:cc-x", Folder: "prod",
				Retention: 30}}
			in.Cluster.Objects = Objects{{Kind: KindSecret, Namespace: "cattle-global-data", Name: "cc-x"}: {GrantedTo: "fleet-default/prod",
				Data: map[string][]byte{
					"s3credentialConfig-accessKey": []byte("AKIA"), "s3credentialConfig-secretKey": []byte("hush"),
					"s3credentialConfig-defaultBucket":   []byte("snapshots"),
					"s3credentialConfig-defaultEndpoint": []byte("s3.example.com:9000"), "s3credentialConfig-defaultSkipSSLVerify": []byte("false"),
					"s3credentialConfig-defaultEndpointCA": []byte("LS0tIGNhIC0tLQo="), "s3credentialConfig-defaultRegion": []byte("eu"),
				}}}
			return k3s, "ec"
		},
		"s3-without-credential": func(in *Inputs) (string, string) {
			in.Cluster.Spec.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{Bucket: "b", SkipSSLVerify: true, Retention: 3}}
			return "v1.33.3+rke2r1", "e"
		},
		"s3-broken": func(in *Inputs) (string, string) {
			in.Cluster.Spec.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{CloudCredentialName: "half", Endpoint: "https://s3.example.com"}}
			in.Cluster.Objects = Objects{{Kind: KindSecret, Name: "half"}: {Data: map[string][]byte{"accessKey": []byte("AKIA")}}}
			return k3s, "e"
		},
		"s3-of-others": func(in *Inputs) (string, string) {
			in.Cluster.Spec.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{CloudCredentialName: "cattle-global-data:cc-x", Bucket: "b"}}
			in.Cluster.Objects = Objects{{Kind: KindSecret, Namespace: "cattle-global-data", Name: "cc-x"}: {GrantedTo: "prod"}}
			return k3s, "e"
		},
		"snapshot-metadata": func(in *Inputs) (string, string) {
			in.Cluster.SnapshotMetadata = "H4sIAAAA"
			return rke2, "c"
		},
		"bootstrap-secrets-first": func(in *Inputs) (string, string) {
			in.Cluster.Spec.AdditionalManifest = "a: b"
			in.Cluster.BootstrapSecrets = bootstrapSecrets
			return k3s, "ecwi"
		},
		"bootstrap-secrets-later": func(in *Inputs) (string, string) {
			in.Cluster.Bootstrapped = true
			in.Cluster.BootstrapSecrets = bootstrapSecrets
			return k3s, "ecw"
		},
		"vsphere": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"cloud-provider-name": "rancher-vsphere"}`)
			in.Machine.ProviderID = "vsphere://4213"
			return rke2, "ec"
		},
		"prime": func(in *Inputs) (string, string) {
			in.Cluster.Prime = true
			return rke2, "ec"
		},
		"prime-worker": func(in *Inputs) (string, string) {
			in.Cluster.Prime = true
			return rke2, "w"
		},
		"unmanaged-configuration": func(in *Inputs) (string, string) {
			in.Cluster.Spec.UnmanagedConfig = true
			return rke2, "ecw"
		},
		"etcd-first-without-address": func(in *Inputs) (string, string) {
			in.Machine.DetectedAddress = ""
			return rke2, "ei"
		},
		"etcd-first-with-address": func(in *Inputs) (string, string) {
			in.Machine.Addressed = true
			return rke2, "ei"
		},
	}
}

var bootstrapSecrets = []BootstrapSecret{
	{Namespace: "kube-system", Name: "cloud", Type: "Opaque", Data: map[string][]byte{"b": []byte("2"), "a": []byte("1")}},
	{Namespace: "vault", Name: "token"},
}

func addressCases(t testing.TB) map[string]func(*Inputs) (string, string) {
	const four, six, link = "10.0.0.5", "fd00::5", "fe80::1%eth0"
	dual := func(in *Inputs, first, second string) {
		in.Cluster.Spec.MachineGlobalConfig.Data = map[string]any{"service-cidr": first + "," + second}
		in.Machine.InternalAddresses, in.Machine.Addresses = []string{four, link, six}, []string{"203.0.113.5", "2001:db8::5", "fe80::2",
			"node.example.com"}
		in.Machine.DetectedAddress = "fe80::3"
	}
	return map[string]func(*Inputs) (string, string){
		"dual-stack-ipv4-first": func(in *Inputs) (string, string) {
			dual(in, "10.43.0.0/16", "fd00::/112")
			return k3s, "ecw"
		},
		"dual-stack-ipv6-first": func(in *Inputs) (string, string) {
			dual(in, "fd00::/112", "10.43.0.0/16")
			in.Cluster.Spec.Networking = &rkev1.Networking{StackPreference: "dual"}
			return rke2, "ecw"
		},
		"dual-stack-worker": func(in *Inputs) (string, string) {
			dual(in, "fd00::/112", "10.43.0.0/16")
			return rke2, "w"
		},
		"ipv6-only": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"cluster-cidr": "fd01::/48", "service-cidr": ["fd00::/112"]}`)
			in.Machine.InternalAddresses, in.Machine.DetectedAddress, in.Cluster.Endpoint = []string{six}, six, "[2001:db8::1]"
			in.JoinURL = JoinURL(in.Cluster, "fd00::9")
			return rke2, "ecw"
		},
		"cloud-provider-knows-addresses": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"cloud-provider-name": "aws"}`)
			in.Machine.InternalAddresses, in.Machine.Addresses = []string{four}, []string{"203.0.113.5"}
			return rke2, "ec"
		},
		"provider-id": func(in *Inputs) (string, string) {
			in.Machine.ProviderID = "lab:///a"
			return k3s, "w"
		},
		"labels-that-no-kubelet-takes": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t,
				`{"node-label": ["tier=db", "node-role.kubernetes.io/db=true"], "node-label+": {"x.k8s.io/y": 1}}`)
			return rke2, "w"
		},
		"labels-and-taints": func(in *Inputs) (string, string) {
			in.Machine.NodeLabels = map[string]string{
				"tier": "db", rkev1.MachineUIDLabel: "stolen", "node-role.kubernetes.io/worker": "true", "topology.kubernetes.io/zone": "z1",
				"node.kubernetes.io/x": "y",
			}
			in.Machine.NodeTaints = []corev1.Taint{{Key: "b", Effect: corev1.TaintEffectNoSchedule},
				{Key: "a", Value: "1", Effect: corev1.TaintEffectNoExecute}}
			return k3s, "ew"
		},
	}
}
