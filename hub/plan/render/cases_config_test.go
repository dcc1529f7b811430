package render

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

func registryCases() map[string]func(*Inputs) (string, string) {
	private := func(in *Inputs) {
		in.Cluster.Spec.Registries = &rkev1.Registry{
			Mirrors: map[string]rkev1.Mirror{"*": {Endpoints: []string{"https://registry.example.com:5000"}}},
			Configs: map[string]rkev1.RegistryConfig{"registry.example.com:5000": {AuthConfigSecretName: "auth", TLSSecretName: "tls",
				CABundle: []byte("ca\n")}},
		}
		in.Cluster.Objects = Objects{
			{Kind: KindSecret, Name: "auth"}: {Type: rkev1.AuthConfigSecretType,
				Data: map[string][]byte{"username": []byte("u"), "password": []byte("p")}},
			{Kind: KindSecret, Name: "tls"}: {Type: "kubernetes.io/tls",
				Data: map[string][]byte{"tls.crt": []byte("crt\n"), "tls.key": []byte("key\n")}},
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
			in.Cluster.Objects[Reference{Kind: KindSecret, Name: "auth"}] = Object{Type: rkev1.AuthConfigSecretType,
				Data: map[string][]byte{"auth": []byte("u:p\n")}}
			return k3s, "w"
		},
		"registry-auth-in-base64": func(in *Inputs) (string, string) {
			private(in)
			in.Cluster.Objects[Reference{Kind: KindSecret, Name: "auth"}] = Object{Type: rkev1.AuthConfigSecretType,
				Data: map[string][]byte{"auth": []byte("dTpw")}}
			return k3s, "w"
		},
		"registry-auth-malformed": func(in *Inputs) (string, string) {
			private(in)
			in.Cluster.Objects[Reference{Kind: KindSecret, Name: "auth"}] = Object{Type: rkev1.AuthConfigSecretType,
				Data: map[string][]byte{"auth": []byte("secret")}}
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
			in.Cluster.Spec.MachineGlobalConfig = config(t,
				`{"kubelet-arg": {"max-pods": 250, "v": 2}, "https-listen-port": 7443, "write-kubeconfig-mode": 644,
				"audit-policy-file": {"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "rules": [{"level": "Metadata"}]}, "etcd-snapshot-retention": "7"}`)
			return k3s, "ecw"
		},
		"arguments-policy-as-yaml": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t,
				`{"audit-policy-file": {"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "rules": [{"level": "Metadata"}]}}`)
			return rke2, "c"
		},
		"arguments-by-selector": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t, `{"kubelet-arg": ["max-pods=100"], "selinux": true}`)
			in.Cluster.Spec.MachineSelectorConfig = []rkev1.RKESystemConfig{
				{MachineLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rke.cattle.io/machine-name": "a"}},
					Config: config(t, `{"selinux": null, "kubelet-arg+": ["v=4"]}`)},
				{MachineLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"rke.cattle.io/machine-name": "z"}},
					Config: config(t, `{"debug": true}`)},
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
			in.Cluster.Spec.MachineGlobalConfig = config(t,
				`{"cloud-provider-name": "harvester", "cloud-provider-config": "secret://fleet-default:harvester"}`)
			in.Cluster.Objects = Objects{{Kind: KindSecret, Namespace: "fleet-default", Name: "harvester"}: {GrantedTo: "prod",
				Data: map[string][]byte{"credential": []byte("kubeconfig\n")}}}
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
			in.Cluster.Spec.MachineGlobalConfig = config(t,
				`{"kube-controller-manager-arg": ["tls-cert-file=/opt/certs/kcm.crt", "tls-private-key-file=/opt/keys/kcm.key"],
				"kube-scheduler-arg": ["cert-dir=/opt/certs/scheduler"]}`)
			return rke2, "c"
		},
		"certificates-of-the-users-own-mounted": func(in *Inputs) (string, string) {
			in.Cluster.Spec.MachineGlobalConfig = config(t,
				`{"kube-controller-manager-arg": ["cert-dir=/opt/certs/kcm"], "kube-controller-manager-extra-mount": ["/opt/certs:/opt/certs:ro"],
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
				{MachineLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{rkev1.OSLabel: "windows"}},
					Config: config(t, `{"kubelet-arg": ["image-gc-high-threshold=70"]}`)},
				{MachineLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{rkev1.OSLabel: "linux"}},
					Config: config(t, `{"protect-kernel-defaults": true}`)},
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
			in.Delivered = files("/etc/rancher/k3s/config.yaml.d/50-rancher.yaml", "/etc/two", "/etc/one",
				"/var/lib/rancher/k3s/server/tls/server-ca.crt")
			in.Delivered.Files = append(in.Delivered.Files, plans.File{Path: "/etc/gone", Action: plans.ActionDelete})
			return k3s, "w"
		},
		"removal-of-a-changed-path": func(in *Inputs) (string, string) {
			in.Delivered = files("/etc/old")
			in.Cluster.Objects = Objects{{Kind: KindConfigMap, Name: "map"}: {Data: map[string][]byte{"k": []byte("v\n")}, AuthorizedFor: "prod"}}
			in.Cluster.Spec.MachineSelectorFiles = []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{
				{ConfigMap: &rkev1.K8sObjectFileSource{Name: "map",
					Items: []rkev1.KeyToPath{{Key: "k", Path: "/etc/new"}, {Key: "k", Path: "/etc/new", Permissions: "0644"}}}},
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
