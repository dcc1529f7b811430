package render

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/settings"
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
			in.Cluster.Settings = settings.Settings{ServerURL: "https://hub.example:8443", CACerts: []byte("hub ca\n"), ClusterAgentImage: "drover/cluster-agent:v1"}
			in.Cluster.Agent = &Agent{Token: "id.secret", Replicas: 2, ControlPlaneTaints: []corev1.Taint{{Key: "dedicated", Value: "cp", Effect: corev1.TaintEffectNoSchedule}}}
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"system-default-registry": "registry.example.com"}`)
			in.Cluster.Spec.AgentEnvVars = []rkev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy:3128"}, {Name: "CATTLE_SERVER", Value: "https://other"}}
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
			in.Delivered.Files = []plans.File{{Path: "/var/lib/rancher/k3s/server/manifests/rancher/cluster-agent.yaml", Content: "YWdlbnQK", Dynamic: true, Minor: true}}
			return k3s, "ecw"
		},
		"auth-endpoint-of-the-users-own": func(in *Inputs) (string, string) {
			in.Cluster.Spec.LocalClusterAuthEndpoint.Enabled = true
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"kube-apiserver-arg": ["authentication-token-webhook-config-file=/etc/mine"]}`)
			return rke2, "c"
		},
		"s3-with-credential": func(in *Inputs) (string, string) {
			in.Cluster.Spec.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{CloudCredentialName: "cattle-global-data:cc-x", Folder: "prod", Retention: 30}}
			in.Cluster.Objects = Objects{{Kind: KindSecret, Namespace: "cattle-global-data", Name: "cc-x"}: {GrantedTo: "fleet-default/prod", Data: map[string][]byte{
				"s3credentialConfig-accessKey": []byte("AKIA"), "s3credentialConfig-secretKey": []byte("hush"), "s3credentialConfig-defaultBucket": []byte("snapshots"),
				"s3credentialConfig-defaultEndpoint": []byte("s3.example.com:9000"), "s3credentialConfig-defaultSkipSSLVerify": []byte("false"),
				"s3credentialConfig-defaultEndpointCA": []byte("LS0tIGNhIC0tLQo="), "s3credentialConfig-defaultRegion": []byte("eu"),
			}}}
			return k3s, "ec"
		},
		"s3-without-credential": func(in *Inputs) (string, string) {
			in.Cluster.Spec.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{Bucket: "b", SkipSSLVerify: true, Retention: 3}}
			return "v1.33.5+rke2r1", "e"
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
		in.Machine.InternalAddresses, in.Machine.Addresses = []string{four, link, six}, []string{"203.0.113.5", "2001:db8::5", "fe80::2", "node.example.com"}
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
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"node-label": ["tier=db", "node-role.kubernetes.io/db=true"], "node-label+": {"x.k8s.io/y": 1}}`)
			return rke2, "w"
		},
		"labels-and-taints": func(in *Inputs) (string, string) {
			in.Machine.NodeLabels = map[string]string{
				"tier": "db", rkev1.MachineUIDLabel: "stolen", "node-role.kubernetes.io/worker": "true", "topology.kubernetes.io/zone": "z1", "node.kubernetes.io/x": "y",
			}
			in.Machine.NodeTaints = []corev1.Taint{{Key: "b", Effect: corev1.TaintEffectNoSchedule}, {Key: "a", Value: "1", Effect: corev1.TaintEffectNoExecute}}
			return k3s, "ew"
		},
	}
}

func registryCases() map[string]func(*Inputs) (string, string) {
	private := func(in *Inputs) {
		in.Cluster.Spec.Registries = &rkev1.Registry{
			Mirrors: map[string]rkev1.Mirror{"*": {Endpoints: []string{"https://registry.example.com:5000"}}},
			Configs: map[string]rkev1.RegistryConfig{"registry.example.com:5000": {AuthConfigSecretName: "auth", TLSSecretName: "tls", CABundle: []byte("ca\n")}},
		}
		in.Cluster.Objects = Objects{
			{Kind: KindSecret, Name: "auth"}: {Type: rkev1.AuthConfigSecretType, Data: map[string][]byte{"username": []byte("u"), "password": []byte("p")}},
			{Kind: KindSecret, Name: "tls"}:  {Type: "kubernetes.io/tls", Data: map[string][]byte{"tls.crt": []byte("crt\n"), "tls.key": []byte("key\n")}},
		}
	}
	return map[string]func(*Inputs) (string, string){
		"registry-private-k3s": func(in *Inputs) (string, string) {
			private(in)
			return k3s, "w"
		},
		"files-optional": func(in *Inputs) (string, string) {
			in.Cluster.Objects = Objects{{Kind: KindConfigMap, Name: "map"}: {Data: map[string][]byte{"k": []byte("v\n")}, AuthorizedFor: "prod"}}
			items := []rkev1.KeyToPath{{Key: "gone", Path: "/etc/gone"}, {Key: "k", Path: "/etc/there"}}
			in.Cluster.Spec.MachineSelectorFiles = []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{
				{ConfigMap: &rkev1.K8sObjectFileSource{Name: "map", Items: items, Optional: true}},
				{Secret: &rkev1.K8sObjectFileSource{Name: "gone", Items: items, Optional: true}},
			}}}
			return k3s, "w"
		},
		"registry-private-rke2-data-dir": func(in *Inputs) (string, string) {
			private(in)
			in.Cluster.Spec.DataDirectories.K8sDistro = "/data"
			return rke2, "w"
		},
		"registry-mirror": func(in *Inputs) (string, string) {
			in.Cluster.Spec.Registries = &rkev1.Registry{Mirrors: map[string]rkev1.Mirror{
				"docker.io": {Endpoints: []string{"http://10.0.0.2:5000"}, Rewrites: map[string]string{"^rancher/(.*)": "mirror/$1"}},
			}}
			return k3s, "ecw"
		},
		"registry-system-default": func(in *Inputs) (string, string) {
			in.Cluster.Settings.SystemDefaultRegistry = "hub.example.com"
			return rke2, "ec"
		},
		"registry-system-default-pull-secret": func(in *Inputs) (string, string) {
			in.Cluster.Settings.SystemDefaultRegistry = "hub.example.com:5000"
			in.Cluster.PullSecrets = []Object{
				{Data: map[string][]byte{".dockerconfigjson": []byte(`{"auths":{"elsewhere.example.com":{"auth":"eDp5"}}}`)}},
				{Data: map[string][]byte{".dockerconfigjson": []byte(`{"auths":{"https://hub.example.com:5000/v2/":{"username":"u","password":"p"}}}`)}},
			}
			return k3s, "w"
		},
		"registry-system-default-pull-secret-of-the-clusters-own-registry": func(in *Inputs) (string, string) {
			in.Cluster.Settings.SystemDefaultRegistry = "hub.example.com"
			in.Cluster.Spec.MachineGlobalConfig.Data = map[string]any{"system-default-registry": "own.example.com"}
			in.Cluster.PullSecrets = []Object{{Data: map[string][]byte{".dockerconfigjson": []byte(`{"auths":{"hub.example.com":{"username":"u","password":"p"}}}`)}}}
			return k3s, "w"
		},
		"registry-auth-in-plain-text": func(in *Inputs) (string, string) {
			private(in)
			in.Cluster.Objects[Reference{Kind: KindSecret, Name: "auth"}] = Object{Type: rkev1.AuthConfigSecretType, Data: map[string][]byte{"auth": []byte("u:p\n")}}
			return k3s, "w"
		},
		"registry-auth-in-base64": func(in *Inputs) (string, string) {
			private(in)
			in.Cluster.Objects[Reference{Kind: KindSecret, Name: "auth"}] = Object{Type: rkev1.AuthConfigSecretType, Data: map[string][]byte{"auth": []byte("dTpw")}}
			return k3s, "w"
		},
		"registry-auth-malformed": func(in *Inputs) (string, string) {
			private(in)
			in.Cluster.Objects[Reference{Kind: KindSecret, Name: "auth"}] = Object{Type: rkev1.AuthConfigSecretType, Data: map[string][]byte{"auth": []byte("secret")}}
			return k3s, "w"
		},
		"registry-system-default-of-the-cluster": func(in *Inputs) (string, string) {
			in.Cluster.Settings.SystemDefaultRegistry = "hub.example.com"
			in.Cluster.Spec.MachineGlobalConfig.Data = map[string]any{"system-default-registry": "own.example.com"}
			return rke2, "w"
		},
	}
}

func argumentCases(t testing.TB) map[string]func(*Inputs) (string, string) {
	return map[string]func(*Inputs) (string, string){
		"arguments-numbers-and-maps": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"kubelet-arg": {"max-pods": 250, "v": 2}, "https-listen-port": 7443, "write-kubeconfig-mode": 644,
				"audit-policy-file": {"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "rules": [{"level": "Metadata"}]}, "etcd-snapshot-retention": "7"}`)
			return k3s, "ecw"
		},
		"arguments-policy-as-yaml": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"audit-policy-file": {"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "rules": [{"level": "Metadata"}]}}`)
			return rke2, "c"
		},
		"arguments-by-selector": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"kubelet-arg": ["max-pods=100"], "selinux": true}`)
			in.Cluster.Spec.MachineSelectorConfig = []rkev1.RKESystemConfig{
				{MachineLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rke.cattle.io/machine-name": "a"}}, Config: config(t, `{"selinux": null, "kubelet-arg+": ["v=4"]}`)},
				{MachineLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rke.cattle.io/machine-name": "z"}}, Config: config(t, `{"debug": true}`)},
			}
			return k3s, "w"
		},
		"arguments-unknown": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"clutser-cidr": "10.0.0.0/8", "token": "mine", "cluster-init": true}`)
			return rke2, "w"
		},
		"version-unknown": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"brand-new": {"a": 1}, "brand-new-too": 7, "cluster-cidr": "10.0.0.0/8"}`)
			return "v1.39.0+k3s1", "w"
		},
		"cloud-config-from-secret": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"cloud-provider-name": "harvester", "cloud-provider-config": "secret://fleet-default:harvester"}`)
			in.Cluster.Objects = Objects{{Kind: KindSecret, Namespace: "fleet-default", Name: "harvester"}: {GrantedTo: "prod", Data: map[string][]byte{"credential": []byte("kubeconfig\n")}}}
			return rke2, "w"
		},
		"cloud-config-not-authorized": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"cloud-provider-config": "secret://elsewhere:harvester"}`)
			in.Cluster.Objects = Objects{{Kind: KindSecret, Namespace: "elsewhere", Name: "harvester"}: {GrantedTo: "prod"}}
			return rke2, "w"
		},
		"charts": func(in *Inputs) (string, string) {
			in.Cluster.Release.Charts = []string{"rke2-coredns", "rke2-traefik"}
			in.Cluster.Spec.ChartValues = config(t, `{"rke2-coredns": {"replicas": 3}, "rke2-treafik": {}}`)
			return rke2, "c"
		},
		"probes-other-network-plugin": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineSelectorConfig = []rkev1.RKESystemConfig{{Config: config(t, `{"cni": "multus,cilium"}`)}}
			return rke2, "w"
		},
		"probes-multus-with-calico": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"cni": "multus,calico"}`)
			in.Cluster.Spec.ChartValues = config(t, `{"rke2-calico": {"felixConfiguration": {"healthPort": 9199}}}`)
			return rke2, "w"
		},
		"probes-calico-without-health": func(in *Inputs) (string, string) {
			in.Cluster.Spec.ChartValues = config(t, `{"rke2-calico": {"felixConfiguration": {"healthEnabled": false}}}`)
			return rke2, "ec"
		},
		"probes-calico-disabled": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"disable": ["rke2-calico"]}`)
			return rke2, "w"
		},
		"certificates-of-the-users-own": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"kube-controller-manager-arg": ["tls-cert-file=/opt/certs/kcm.crt", "tls-private-key-file=/opt/keys/kcm.key"],
				"kube-scheduler-arg": ["cert-dir=/opt/certs/scheduler"]}`)
			return rke2, "c"
		},
		"certificates-of-the-users-own-mounted": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"kube-controller-manager-arg": ["cert-dir=/opt/certs/kcm"], "kube-controller-manager-extra-mount": ["/opt/certs:/opt/certs:ro"],
				"kube-scheduler-arg": ["cert-dir=/opt/certs/scheduler"], "kube-scheduler-extra-mount": ["/opt/certs/scheduler:/opt/certs/scheduler"]}`)
			return rke2, "c"
		},
		"certificates-of-the-users-own-k3s": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"kube-scheduler-arg": ["cert-dir=/opt/certs/scheduler"]}`)
			return k3s, "ec"
		},
		"probes-other-ports": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"kubelet-arg": ["healthz-port=20248"], "kube-scheduler-arg+": ["secure-port=20259"],
				"kube-controller-manager-arg": ["tls-cert-file=/etc/kcm.crt"]}`)
			return rke2, "c"
		},
	}
}

func windowsCases(t testing.TB) map[string]func(*Inputs) (string, string) {
	windows := func(in *Inputs) {
		in.Machine.OS = "windows"
		in.Cluster.Spec.AgentEnvVars = []rkev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy:3128"}}
	}
	return map[string]func(*Inputs) (string, string){
		"windows-worker": func(in *Inputs) (string, string) {
			windows(in)
			return rke2, "w"
		},
		"windows-worker-data-directories": func(in *Inputs) (string, string) {
			windows(in)
			in.Cluster.Spec.DataDirectories = rkev1.DataDirectories{SystemAgent: "/data/agent", Provisioning: "/data/capr", K8sDistro: "/data/rke2"}
			return rke2, "w"
		},
		"windows-worker-registry": func(in *Inputs) (string, string) {
			windows(in)
			in.Cluster.Spec.Registries = &rkev1.Registry{Configs: map[string]rkev1.RegistryConfig{"registry.example.com:5000": {CABundle: []byte("ca\n")}}}
			return rke2, "w"
		},
		"windows-server": func(in *Inputs) (string, string) {
			windows(in)
			return rke2, "ecw"
		},
		"windows-k3s": func(in *Inputs) (string, string) {
			windows(in)
			return k3s, "w"
		},
		"windows-worker-selected-config": func(in *Inputs) (string, string) {
			windows(in)
			in.Machine.Labels = map[string]string{rkev1.OSLabel: "windows"}
			in.Cluster.Spec.MachineSelectorConfig = []rkev1.RKESystemConfig{
				{MachineLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{rkev1.OSLabel: "windows"}}, Config: config(t, `{"kubelet-arg": ["image-gc-high-threshold=70"]}`)},
				{MachineLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{rkev1.OSLabel: "linux"}}, Config: config(t, `{"protect-kernel-defaults": true}`)},
			}
			return rke2, "w"
		},
	}
}

func removalCases(t testing.TB) map[string]func(*Inputs) (string, string) {
	files := func(paths ...string) plans.Plan {
		var p plans.Plan
		for _, path := range paths {
			p.Files = append(p.Files, plans.File{Path: path})
		}
		return p
	}
	return map[string]func(*Inputs) (string, string){
		"removal": func(in *Inputs) (string, string) {
			in.Delivered = files("/etc/rancher/k3s/config.yaml.d/50-rancher.yaml", "/etc/two", "/etc/one", "/var/lib/rancher/k3s/server/tls/server-ca.crt")
			in.Delivered.Files = append(in.Delivered.Files, plans.File{Path: "/etc/gone", Action: plans.ActionDelete})
			return k3s, "w"
		},
		"removal-of-a-changed-path": func(in *Inputs) (string, string) {
			in.Delivered = files("/etc/old")
			in.Cluster.Objects = Objects{{Kind: KindConfigMap, Name: "map"}: {Data: map[string][]byte{"k": []byte("v\n")}, AuthorizedFor: "prod"}}
			in.Cluster.Spec.MachineSelectorFiles = []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{
				{ConfigMap: &rkev1.K8sObjectFileSource{Name: "map", Items: []rkev1.KeyToPath{{Key: "k", Path: "/etc/new"}, {Key: "k", Path: "/etc/new", Permissions: "0644"}}}},
			}}}
			return rke2, "w"
		},
		"removal-on-windows": func(in *Inputs) (string, string) {
			in.Machine.OS = "windows"
			in.Delivered = files(`c:\etc\old`)
			return rke2, "w"
		},
	}
}
