package agent

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/e2e/distro/internal/args"
	"github.com/drover-dev/drover/e2e/distro/internal/child"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/layout"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

func (a *agent) startKubelet(context.Context) error {
	taints, err := parseTaints(a.c.NodeTaint)
	if err != nil {
		return fmt.Errorf("node-taint: %w", err)
	}
	raw, err := yaml.Marshal(a.kubeletConfig(taints))
	if err != nil {
		return err
	}
	file := a.data.Agent(flavour.Name("etc/kubelet.conf.d/00-*-defaults.conf"))
	if err := pki.WriteFile(file, raw, 0o600); err != nil {
		return err
	}
	flags := map[string]string{
		"config": file, "kubeconfig": a.data.Agent("kubelet.kubeconfig"), "hostname-override": a.c.NodeName,
		"node-ip": strings.Join(a.ips, ","), "cloud-provider": "external", "root-dir": layout.KubeletDir,
	}
	if len(a.c.NodeLabel) > 0 {
		flags["node-labels"] = strings.Join(a.c.NodeLabel, ",")
	}
	return a.Set.Start(child.Child{Name: "kubelet", Patience: 3 * time.Second,
		Args: append([]string{"internal", "kubelet"}, args.Merge(flags, a.c.KubeletArg)...)})
}

// kubeletConfig is kubelet's configuration file. Hosts are containers: there may be swap, their disk cannot be measured,
// and on a machine with cgroup v1 kubelet must not refuse it.
func (a *agent) kubeletConfig(taints []corev1.Taint) map[string]any {
	conf := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": "0.0.0.0", "healthzBindAddress": "127.0.0.1", "healthzPort": 10248,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true, "cacheTTL": "2m0s"},
			"x509": map[string]any{"clientCAFile": a.data.Agent("client-ca.crt")},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		"tlsCertFile":   a.data.Agent("serving-kubelet.crt"), "tlsPrivateKeyFile": a.data.Agent("serving-kubelet.key"),
		"cgroupDriver": "cgroupfs", "failCgroupV1": false, "failSwapOn": false, "localStorageCapacityIsolation": false,
		"containerRuntimeEndpoint": "unix://" + layout.ContainerdSocket,
		"clusterDNS":               a.settings.ClusterDNS, "clusterDomain": a.settings.ClusterDomain, "resolvConf": a.resolvConf(),
		"staticPodPath": a.data.PodManifests(), "serializeImagePulls": false, "registerWithTaints": taints,
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"evictionHard":              map[string]any{"imagefs.available": "1%", "nodefs.available": "1%"},
		"volumePluginDir":           "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
		"shutdownGracePeriod":       "0s",
		"nodeStatusReportFrequency": "1m0s", "nodeStatusUpdateFrequency": "10s",
	}
	if flavour.Current.StaticPods {
		conf["fileCheckFrequency"] = "5s"
	}
	return conf
}

// resolvConf is the file that pods' resolv.conf is made of: the machine's, if it names a server that pods can reach.
func (a *agent) resolvConf() string {
	if a.c.ResolvConf != "" {
		return a.c.ResolvConf
	}
	for _, file := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		if hasNameserver(file) {
			return file
		}
	}
	file := a.data.Agent("etc/resolv.conf")
	if err := pki.WriteFile(file, []byte("nameserver 8.8.8.8\n"), 0o644); err != nil {
		return "/dev/null"
	}
	return file
}

func hasNameserver(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 2 && fields[0] == "nameserver" {
			ip := net.ParseIP(fields[1])
			return ip.IsGlobalUnicast()
		}
	}
	return false
}

// parseTaints reads taints as they are written: key=value:Effect or key:Effect, several with commas between. As for the kubelet's flag, no
// two may have one key and effect.
func parseTaints(texts []string) ([]corev1.Taint, error) {
	out := []corev1.Taint{}
	if len(texts) == 0 {
		return out, nil
	}
	for text := range strings.SplitSeq(strings.Join(texts, ","), ",") {
		head, effect, found := strings.Cut(text, ":")
		key, value, _ := strings.Cut(head, "=")
		t := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			found = false
		}
		if !found || key == "" {
			return nil, fmt.Errorf("%q is not of the form key=value:Effect", text)
		}
		if slices.ContainsFunc(out, func(other corev1.Taint) bool { return other.MatchTaint(&t) }) {
			return nil, fmt.Errorf("duplicated taints with the same key and effect: %s", text)
		}
		out = append(out, t)
	}
	return out, nil
}
