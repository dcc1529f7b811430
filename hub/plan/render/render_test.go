package render

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/plans"
)

// node is a machine with the roles named by letters: e, c, w; i for the init node.
func node(name, roles string) Machine {
	return Machine{
		Name: name, UID: "uid-" + name, Labels: map[string]string{"rke.cattle.io/machine-name": name},
		Etcd: strings.Contains(roles, "e"), ControlPlane: strings.Contains(roles, "c"), Worker: strings.Contains(roles, "w"),
		Init: strings.Contains(roles, "i"), DetectedAddress: "10.0.0.1",
	}
}

func cluster(t testing.TB, version string) Cluster {
	t.Helper()
	r, err := release.Lookup(version)
	if err != nil {
		t.Fatal(err)
	}
	c := Cluster{
		Namespace: "fleet-default", Name: "prod", ManagementName: "c-m-abcdefgh", Release: r,
		Tokens: Tokens{Server: "server-token", Agent: "agent-token"},
		CA: CA{
			Server: KeyPair{Cert: []byte("server ca\n"), Key: []byte("server ca key\n")},
			Client: KeyPair{Cert: []byte("client ca\n"), Key: []byte("client ca key\n")},
		},
	}
	c.Spec.KubernetesVersion = version
	return c
}

// config decodes JSON as the API server's decoder does.
func config(t testing.TB, text string) rkev1.GenericMap {
	t.Helper()
	var m rkev1.GenericMap
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func encoded(t testing.TB, plan plans.Plan) string {
	t.Helper()
	raw, err := plan.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// everything is a cluster that uses every field that a plan is made from.
func everything(t testing.TB, version string) Inputs {
	c := cluster(t, version)
	c.Endpoint = "api.example.com"
	c.ConfigGeneration = 2
	c.Spec.AgentEnvVars = []rkev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy:3128"}, {Name: "EMPTY"}}
	c.Spec.ClusterConfiguration = rkev1.ClusterConfiguration{
		MachineGlobalConfig: config(t, `{
			"cluster-cidr": "10.10.0.0/16", "service-cidr": ["fd00::/112",
				"10.43.0.0/16"], "https-listen-port": 7443, "etcd-snapshot-retention": "7",
			"selinux": "true", "write-kubeconfig-mode": 644, "kube-apiserver-arg": ["max-requests-inflight=500"], "debug": null,
			"kube-controller-manager-arg": "secure-port=20257", "system-default-registry": "registry.example.com:5000",
			"audit-policy-file": "apiVersion: audit.k8s.io/v1\nkind: Policy\n", "node-label": ["zone=a"], "tls-san": ["prod.example.com"]}`),
		MachineSelectorConfig: []rkev1.RKESystemConfig{
			{Config: config(t, `{"protect-kernel-defaults": true}`)},
			{
				MachineLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rke.cattle.io/machine-name": "a"}},
				Config:               config(t, `{"cluster-cidr": "10.20.0.0/16"}`),
			},
			{
				MachineLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rke.cattle.io/machine-name": "other"}},
				Config:               config(t, `{"cluster-cidr": "10.30.0.0/16"}`),
			},
		},
		MachineSelectorFiles: []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{
			{Secret: &rkev1.K8sObjectFileSource{Name: "files", DefaultPermissions: "0640", Items: []rkev1.KeyToPath{
				{Key: "one", Path: "/etc/one"}, {Key: "two", Path: "/etc/two", Permissions: "0600", Dynamic: true},
			}}},
			{ConfigMap: &rkev1.K8sObjectFileSource{Name: "map", Items: []rkev1.KeyToPath{{Key: "three", Path: "/etc/three"}}}},
		}}},
		AdditionalManifest: "apiVersion: v1\nkind: Namespace\nmetadata: {name: extra}\n",
		ChartValues:        config(t, `{"traefik": {"global": {"keep": 1}, "ports": {"web": 80}}, "coredns": null}`),
		Registries: &rkev1.Registry{
			Mirrors: map[string]rkev1.Mirror{"docker.io": {Endpoints: []string{"http://10.0.0.2:5000"},
				Rewrites: map[string]string{"^rancher/(.*)": "mirror/$1"}}},
			Configs: map[string]rkev1.RegistryConfig{
				"registry.example.com:5000": {AuthConfigSecretName: "auth", TLSSecretName: "tls", CABundle: []byte("registry ca\n")},
				"docker.io":                 {AuthConfigSecretName: "docker", InsecureSkipVerify: true},
				"basic.example.com":         {AuthConfigSecretName: "basic"},
			},
		},
		ETCD:                &rkev1.ETCD{SnapshotRetention: 9, SnapshotScheduleCron: "0 */6 * * *"},
		Networking:          &rkev1.Networking{StackPreference: "ipv6"},
		DataDirectories:     rkev1.DataDirectories{K8sDistro: "/data/k3s"},
		ProvisionGeneration: 3,
	}
	c.Objects = Objects{
		{Kind: KindSecret, Name: "auth"}: {Type: rkev1.AuthConfigSecretType, Data: map[string][]byte{"identityToken": []byte("identity")}},
		{Kind: KindSecret, Name: "basic"}: {Type: "kubernetes.io/basic-auth",
			Data: map[string][]byte{"username": []byte("u"), "password": []byte("p")}},
		{Kind: KindSecret, Name: "docker"}: {Type: "kubernetes.io/dockerconfigjson",
			Data: map[string][]byte{".dockerconfigjson": []byte(`{"auths":{"https://index.docker.io/v1/":{"auth":"dTpw"}}}`)}},
		{Kind: KindSecret, Name: "tls"}: {Type: "kubernetes.io/tls",
			Data: map[string][]byte{"tls.crt": []byte("cert\n"), "tls.key": []byte("key\n")}},
		{Kind: KindSecret, Name: "files"}:  {Data: map[string][]byte{"one": []byte("1\n"), "two": []byte("2\n")}, AuthorizedFor: "other, prod"},
		{Kind: KindConfigMap, Name: "map"}: {Data: map[string][]byte{"three": []byte("3\n")}, AuthorizedFor: "prod"},
	}
	m := node("a", "eci")
	m.NodeName = "node-a"
	m.Addresses = []string{"203.0.113.5", "fe80::1"}
	m.InternalAddresses = []string{"10.0.0.5", "fd00::5"}
	m.NodeLabels = map[string]string{"b": "2", "a": "1"}
	m.NodeTaints = []corev1.Taint{{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}}
	return Inputs{Cluster: c, Machine: m}
}

// broken is a cluster that has something wrong in every field where something can be.
func broken(t testing.TB, version string) Inputs {
	c := cluster(t, version)
	c.Spec.LocalClusterAuthEndpoint.Enabled = true
	c.Spec.AgentEnvVars = []rkev1.EnvVar{{Value: "x"}}
	c.Spec.ClusterConfiguration = rkev1.ClusterConfiguration{
		MachineGlobalConfig: config(t,
			`{"clutser-cidr": "10.0.0.0/8", "selinux": "perhaps", "https-listen-port": "many", "tls-san": [["x"]], "token": "mine",
			"node-name": {"a": 1}, "kubelet-arg": {"a": "b"}, "cloud-provider-config": "secret://a:b", "flannel-conf": "secret://a:b"}`),
		MachineSelectorConfig: []rkev1.RKESystemConfig{{MachineLabelSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}}},
		MachineSelectorFiles: []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{
			{Secret: &rkev1.K8sObjectFileSource{Name: "unauthorized"}},
			{Secret: &rkev1.K8sObjectFileSource{Name: "missing"}},
			{},
			{ConfigMap: &rkev1.K8sObjectFileSource{Name: "map",
				Items: []rkev1.KeyToPath{{Key: "none", Path: "/x"}, {Key: "some", Path: "/y", Hash: "AAAA"}}}},
		}}},
		ChartValues: config(t, `{"traefik": ["x"]}`),
		Registries: &rkev1.Registry{Configs: map[string]rkev1.RegistryConfig{
			"a": {AuthConfigSecretName: "missing"}, "b": {AuthConfigSecretName: "opaque"},
			"c": {AuthConfigSecretName: "empty", TLSSecretName: "keyless"},
			"d": {AuthConfigSecretName: "docker"},
		}},
		ETCD: &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{}},
	}
	c.Objects = Objects{
		{Kind: KindSecret, Name: "unauthorized"}: {AuthorizedFor: "production"},
		{Kind: KindSecret, Name: "opaque"}:       {Type: "Opaque"},
		{Kind: KindSecret, Name: "empty"}:        {Type: rkev1.AuthConfigSecretType},
		{Kind: KindSecret, Name: "keyless"}:      {Type: "kubernetes.io/tls"},
		{Kind: KindSecret, Name: "docker"}: {Type: "kubernetes.io/dockerconfigjson",
			Data: map[string][]byte{".dockerconfigjson": []byte(`{"auths":{"e":{}}}`)}},
		{Kind: KindConfigMap, Name: "map"}: {Data: map[string][]byte{"some": []byte("x")}, AuthorizedFor: "prod"},
	}
	m := node("a", "ecwi")
	m.OS = "windows"
	return Inputs{Cluster: c, Machine: m}
}
