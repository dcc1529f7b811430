package render

import (
	"slices"
	"strings"
	"testing"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
)

func TestJoinURL(t *testing.T) {
	k3s, rke2, moved := cluster(t, "v1.36.3+k3s1"), cluster(t, "v1.36.3+rke2r1"), cluster(t, "v1.36.3+k3s1")
	moved.Spec.MachineGlobalConfig = config(t, `{"https-listen-port": "7443"}`)
	for want, got := range map[string]string{
		"https://10.0.0.1:6443":  JoinURL(k3s, "10.0.0.1"),
		"https://10.0.0.2:9345":  JoinURL(rke2, "10.0.0.2"),
		"https://10.0.0.3:7443":  JoinURL(moved, "10.0.0.3"),
		"https://[fd00::1]:6443": JoinURL(k3s, "fd00::1"),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestSupervisorPort: whatever runs on a server and asks that server uses the port that the cluster has chosen.
func TestSupervisorPort(t *testing.T) {
	for version, want := range map[string]string{k3s: ":7443", rke2: ":9345"} {
		in := machineOf(t, version, "a", "ei")
		in.Machine.DetectedAddress, in.Cluster.Tokens.NewServer = "", "new"
		in.Cluster.Spec.MachineGlobalConfig = config(t, `{"https-listen-port": 7443}`)
		plan, _ := Plan(in)
		if len(plan.PeriodicInstructions) == 0 || !strings.Contains(plan.PeriodicInstructions[0].Args[1], "https://localhost"+want+"/db/info") {
			t.Errorf("%s: it tells its address with %+v", version, plan.PeriodicInstructions)
		}
		for _, task := range []operation.TaskName{operation.TaskRotateKeys, operation.TaskVerifyKeys, operation.TaskRotateToken} {
			op := &operationv1.EncryptionKeyRotation{}
			op.UID = "u1"
			with := WithTask(in.Cluster, in.Machine, plan, op, operation.Task{Step: "s", Name: task})
			last := with.Instructions[len(with.Instructions)-1]
			if !slices.ContainsFunc(last.Args, func(arg string) bool { return strings.HasPrefix(arg, "https://127.0.0.1"+want) }) {
				t.Errorf("%s: %s runs with %v", version, task, last.Args[3:])
			}
		}
	}
}

// TestBindAddress: a server that listens at one address does not answer at 127.0.0.1. RKE2 has the Kubernetes API listen at all addresses.
func TestBindAddress(t *testing.T) {
	for name, tc := range map[string]struct{ version, config, probe, server string }{
		"unset":         {k3s, `{}`, "https://127.0.0.1:6443/readyz", "https://127.0.0.1:6443"},
		"all addresses": {k3s, `{"bind-address": "0.0.0.0"}`, "https://127.0.0.1:6443/readyz", "https://127.0.0.1:6443"},
		"k3s":           {k3s, `{"bind-address": "10.0.0.5"}`, "https://10.0.0.5:6443/readyz", "https://10.0.0.5:6443"},
		"another port": {k3s, `{"bind-address": "fd00::5", "https-listen-port": 7443}`, "https://[fd00::5]:7443/readyz",
			"https://[fd00::5]:7443"},
		"RKE2": {rke2, `{"bind-address": "10.0.0.5"}`, "https://127.0.0.1:6443/readyz", "https://10.0.0.5:9345"},
	} {
		in := machineOf(t, tc.version, "a", "eci")
		in.Cluster.Spec.MachineGlobalConfig = config(t, tc.config)
		plan, problems := Plan(in)
		if got := plan.Probes[APIServerProbe].HTTPGet.URL; got != tc.probe || problems.Err() != nil {
			t.Errorf("%s: the Kubernetes API is probed at %s: %v", name, got, problems)
		}
		op := &operationv1.EncryptionKeyRotation{}
		op.UID = "u1"
		with := WithTask(in.Cluster, in.Machine, plan, op, operation.Task{Step: "s", Name: operation.TaskRotateKeys})
		if args := with.Instructions[len(with.Instructions)-1].Args; !slices.Contains(args, tc.server) {
			t.Errorf("%s: keys are rotated with %q", name, args[3:])
		}
	}
}

// TestListenPort: a server that listens on another port than the others could not be joined, nor reached.
func TestListenPort(t *testing.T) {
	for name, tc := range map[string]struct {
		version, roles, global, selected string
		want                             string
	}{
		"of all":               {k3s, "ec", `{"https-listen-port": "7443"}`, `{}`, ""},
		"of all, and selected": {k3s, "ec", `{"https-listen-port": 7443}`, `{"https-listen-port": 7443}`, ""},
		"selected default":     {k3s, "ec", `{}`, `{"https-listen-port": 6443}`, ""},
		"of workers":           {k3s, "w", `{}`, `{"https-listen-port": 7443}`, ""},
		"of RKE2":              {rke2, "ec", `{}`, `{"https-listen-port": 7443}`, ""},
		"selected": {k3s, "c", `{}`, `{"https-listen-port": 7443}`, "spec.rkeConfig.machineSelectorConfig[0].config.https-listen-port: " +
			"must be set in machineGlobalConfig, for all servers alike: machines and clients use port 6443"},
		"another one": {k3s, "e", `{"https-listen-port": 7443}`, `{"https-listen-port": 8443}`, "clients use port 7443"},
		"removed":     {k3s, "ec", `{"https-listen-port": 7443}`, `{"https-listen-port": null}`, "clients use port 7443"},
	} {
		in := machineOf(t, tc.version, "a", tc.roles)
		in.Cluster.Spec.MachineGlobalConfig = config(t, tc.global)
		in.Cluster.Spec.MachineSelectorConfig = []rkev1.RKESystemConfig{{Config: config(t, tc.selected)}}
		_, problems := Plan(in)
		if err := problems.Err(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestAuthEndpointName: the certificate of a server is for the name of the authorized cluster endpoint, also if a port follows it.
func TestAuthEndpointName(t *testing.T) {
	for fqdn, want := range map[string]string{
		"api.example.com": `"api.example.com"`, "api.example.com:6443": `"api.example.com"`, "[2001:db8::9]:6443": `"2001:db8::9"`,
		"https://api.example.com:6443": "", "api.example.com/": "",
	} {
		in := machineOf(t, k3s, "a", "ecwi")
		in.Cluster.Spec.LocalClusterAuthEndpoint = rkev1.LocalClusterAuthEndpoint{Enabled: true, FQDN: fqdn}
		plan, problems := Plan(in)
		got := fileOf(t, plan, "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml")
		if !strings.Contains(got, want) || strings.Contains(got, "6443\"") || want == "" && strings.Contains(got, "api.example.com") {
			t.Errorf("%s: the configuration is %s", fqdn, got)
		}
		warns := slices.ContainsFunc(problems, func(p Problem) bool { return p.Field == "spec.localClusterAuthEndpoint.fqdn" && !p.Kept })
		if warns != (want == "") || problems.Err() != nil {
			t.Errorf("%s: problems %+v", fqdn, problems)
		}
	}
}

// TestNodeIPFamilies: k3s and RKE2 end at each start if a Node has no address of a family that its Pods have.
func TestNodeIPFamilies(t *testing.T) {
	const dual = `{"cluster-cidr": "10.42.0.0/16,fd01::/48", "service-cidr": "10.43.0.0/16,fd00::/112"}`
	for name, tc := range map[string]struct {
		roles, config string
		internal      []string
		want          string
	}{
		"one of two":     {"ec", dual, []string{"10.0.0.5"}, "machine a: has the internal addresses 10.0.0.5 only, and none of"},
		"of a worker":    {"w", dual, []string{"fd00::5"}, "none of the family of 10.42.0.0/16"},
		"both":           {"ec", dual, []string{"10.0.0.5", "fd00::5"}, ""},
		"not known":      {"ec", dual, nil, ""},
		"more than that": {"ec", `{"cluster-cidr": "10.42.0.0/16"}`, []string{"10.0.0.5", "fd00::5"}, ""},
		"other family":   {"ec", `{"cluster-cidr": "10.42.0.0/16"}`, []string{"fd00::5"}, "none of the family of 10.42.0.0/16"},
		"no range":       {"ec", `{}`, []string{"fd00::5"}, ""},
	} {
		in := machineOf(t, k3s, "a", tc.roles)
		in.Cluster.Spec.MachineGlobalConfig, in.Machine.InternalAddresses = config(t, tc.config), tc.internal
		_, problems := Plan(in)
		if err := problems.Err(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestRangeFamilies: k3s and RKE2 end at each start if Pods and Services have different families, or the same ones in another order.
func TestRangeFamilies(t *testing.T) {
	const pods, services = "spec.rkeConfig.machineGlobalConfig.cluster-cidr", "spec.rkeConfig.machineGlobalConfig.service-cidr"
	for name, tc := range map[string]struct{ roles, config, want string }{
		"none":          {"ec", `{}`, ""},
		"both of both":  {"ec", `{"cluster-cidr": "10.42.0.0/16,fd01::/48", "service-cidr": ["10.43.0.0/16", "fd00::/112"]}`, ""},
		"IPv6":          {"ec", `{"cluster-cidr": "fd01::/48", "service-cidr": "fd00::/112"}`, ""},
		"IPv6 of one":   {"ec", `{"service-cidr": "fd00::/112"}`, ""},
		"another order": {"ec", `{"cluster-cidr": "10.42.0.0/16,fd01::/48", "service-cidr": "fd00::/112,10.43.0.0/16"}`, services},
		"one and both":  {"ec", `{"cluster-cidr": "10.42.0.0/16,fd01::/48", "service-cidr": "10.43.0.0/16"}`, services},
		"different":     {"ec", `{"cluster-cidr": "10.42.0.0/16", "service-cidr": "fd00::/112"}`, services},
		"Pods alone":    {"e", `{"cluster-cidr": "10.42.0.0/16,fd01::/48"}`, pods},
		"Services":      {"c", `{"service-cidr": "10.43.0.0/16,fd00::/112"}`, services},
		"of a worker":   {"w", `{"service-cidr": "10.43.0.0/16,fd00::/112"}`, ""},
	} {
		in := machineOf(t, k3s, "a", tc.roles)
		in.Cluster.Spec.MachineGlobalConfig = config(t, tc.config)
		_, problems := Plan(in)
		got := ""
		for _, p := range problems {
			if p.Kept && strings.HasSuffix(p.Field, "-cidr") {
				got += p.Field
			}
		}
		if got != tc.want || problems.Err() != nil {
			t.Errorf("%s: got %v", name, problems)
		}
	}
}

// TestNodeIPs: a kubelet does not start with two addresses of one family. A server is reached by the other ones, too.
func TestNodeIPs(t *testing.T) {
	for name, tc := range map[string]struct {
		config        string
		internal      []string
		want, missing []string
	}{
		"two of IPv4": {`{}`, []string{"10.0.0.5", "10.1.0.5"}, []string{"10.0.0.5"}, []string{"10.1.0.5"}},
		"four": {`{}`, []string{"10.0.0.5", "fd00::5", "fd01::5", "10.1.0.5"}, []string{"10.0.0.5", "fd00::5"},
			[]string{"10.1.0.5", "fd01::5"}},
		"of the configuration":   {`{"node-ip": "10.2.0.5"}`, []string{"10.0.0.5"}, []string{"10.2.0.5"}, []string{"10.0.0.5"}},
		"one of each":            {`{}`, []string{"fd00::5", "10.0.0.5"}, []string{"10.0.0.5", "fd00::5"}, nil},
		"another family as well": {`{"node-ip": ["10.2.0.5"]}`, []string{"fd00::5"}, []string{"10.2.0.5", "fd00::5"}, nil},
	} {
		in := machineOf(t, k3s, "a", "ec")
		in.Cluster.Spec.MachineGlobalConfig, in.Machine.InternalAddresses = config(t, tc.config), tc.internal
		plan, _ := Plan(in)
		if internal, _ := NodeAddresses(plan); !slices.Equal(internal, tc.want) {
			t.Errorf("%s: the Node has the addresses %v, want %v", name, internal, tc.want)
		}
		file := fileOf(t, plan, "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml")
		_, names, _ := strings.Cut(file, "tls-san")
		for _, address := range tc.missing {
			if !strings.Contains(names, `"`+address+`"`) {
				t.Errorf("%s: the certificate is not for %s", name, address)
			}
		}
	}
}

// TestAddressesOnce: an address that the configuration names in a text with several is not added again; a Node cannot have it twice.
func TestAddressesOnce(t *testing.T) {
	in := machineOf(t, k3s, "a", "ecw")
	in.Cluster.Spec.MachineGlobalConfig = config(t, `{"node-ip": "10.0.0.5,fd00::5", "node-external-ip": "203.0.113.5,2001:db8::5"}`)
	in.Machine.InternalAddresses, in.Machine.Addresses = []string{"fd00::5", "10.0.0.5"}, []string{"2001:db8::5", "203.0.113.5"}
	plan, _ := Plan(in)
	internal, external := NodeAddresses(plan)
	if !slices.Equal(internal, []string{"10.0.0.5", "fd00::5"}) || !slices.Equal(external, []string{"203.0.113.5", "2001:db8::5"}) {
		t.Errorf("the Node has the addresses %v and %v", internal, external)
	}
}

// TestLoopback: etcd, kubelet, controller manager and scheduler answer in one family only, that of the first range of the Services or,
// without ranges, of the machine's first address. Calico answers at localhost.
func TestLoopback(t *testing.T) {
	for name, tc := range map[string]struct {
		config    string
		addresses []string
		want      string
	}{
		"no address":             {`{}`, nil, "127.0.0.1"},
		"address of IPv4":        {`{}`, []string{"10.0.0.5"}, "127.0.0.1"},
		"addresses of both":      {`{}`, []string{"fd00::5", "10.0.0.5"}, "127.0.0.1"},
		"address of IPv6":        {`{}`, []string{"fe80::5", "fd00::5"}, "[::1]"},
		"argument of IPv6 first": {`{"node-ip": "fd00::5,10.0.0.5"}`, []string{"10.0.0.5"}, "[::1]"},
		"Services of IPv4 first": {`{"service-cidr": "10.43.0.0/16,fd00::/112"}`, []string{"fd00::5", "10.0.0.5"}, "127.0.0.1"},
		"Services of IPv6 first": {`{"service-cidr": ["fd00::/112", "10.43.0.0/16"]}`, []string{"10.0.0.5", "fd00::5"}, "[::1]"},
		"Services of IPv6":       {`{"service-cidr": "fd00::/112"}`, nil, "[::1]"},
	} {
		in := machineOf(t, rke2, "a", "ecw")
		in.Cluster.Spec.MachineGlobalConfig = config(t, tc.config)
		in.Cluster.Spec.LocalClusterAuthEndpoint.Enabled = true
		in.Machine.InternalAddresses = tc.addresses
		plan, problems := Plan(in)
		if err := problems.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		calico := strings.Replace(tc.want, "[::1]", "localhost", 1)
		for probe, want := range map[string]string{
			"etcd": "http://" + tc.want + ":2381/health", "kubelet": "http://" + tc.want + ":10248/healthz",
			"kube-controller-manager": "https://" + tc.want + ":10257/healthz", "kube-scheduler": "https://" + tc.want + ":10259/healthz",
			"calico": "http://" + calico + ":9099/liveness",
		} {
			if got := plan.Probes[probe].HTTPGet.URL; got != want {
				t.Errorf("%s: %s is probed at %s, want %s", name, probe, got, want)
			}
		}
		webhook := fileOf(t, plan, "/var/lib/rancher/rke2/kube-api-authn-webhook.yaml")
		if !strings.Contains(webhook, "http://"+tc.want+":6440/") {
			t.Errorf("%s: the Kubernetes API asks %s", name, webhook)
		}
	}
}
