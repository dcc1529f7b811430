package server

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour/flavourtest"
)

func TestStaticPods(t *testing.T) {
	if !flavourtest.AsRKE2(t) {
		return
	}
	dir := t.TempDir()
	certs := filepath.Join(dir, "server", "tls", scheduler)
	s := newServer(discard, load(t, dir, "--token=secret", "--kube-scheduler-arg=cert-dir="+certs,
		"--kube-scheduler-extra-mount="+certs+":"+certs))
	s.ips = []string{"127.0.0.2"}
	for _, phase := range []func() error{
		func() error { return s.readTokens(t.Context()) },
		func() error { return s.makeCertificates(t.Context()) },
		func() error { return s.writeEtcdPod(t.Context()) },
	} {
		if err := phase(); err != nil {
			t.Fatal(err)
		}
	}
	if s.localURL() != "https://127.0.0.1:6443" || s.settings().CNI[0] != "canal" || !s.SecretsEncryption {
		t.Errorf("%s, %+v", s.localURL(), s.settings())
	}
	for _, name := range []string{"client-rke2-cloud-controller.crt", "server-ca.crt"} {
		mustRead(t, dir, "server", "tls", name)
	}
	read := func(component string) (pod corev1.Pod) {
		t.Helper()
		if err := yaml.UnmarshalStrict([]byte(mustRead(t, string(s.manifests()), component+".yaml")), &pod); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	member := read(etcdMember)
	var first initialOptions
	if err := json.Unmarshal([]byte(member.Annotations[initialAnnotation]), &first); err != nil || first.State != "new" ||
		!strings.HasSuffix(first.Cluster, "=https://127.0.0.2:2380") {
		t.Errorf("%+v, %v", first, err)
	}
	// A member that has data keeps the configuration that it was started with.
	if err := os.MkdirAll(s.data.Etcd("member"), 0o700); err != nil {
		t.Fatal(err)
	}
	joined := `{"initial-cluster":"n0=https://127.0.0.3:2380,n1=https://127.0.0.2:2380","initial-cluster-state":"existing"}`
	member.Annotations[initialAnnotation] = joined
	raw, err := yaml.Marshal(member)
	if err == nil {
		err = s.manifests().Write(etcdMember, raw)
	}
	if err == nil {
		err = s.writeEtcdPod(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if conf := mustRead(t, s.data.Etcd("config")); !strings.Contains(conf, "initial-cluster-state: existing") ||
		!strings.Contains(conf, "n0=https") {
		t.Errorf("%s", conf)
	}
	for _, c := range config.StaticPods[1:] {
		if err := s.start(c); err != nil {
			t.Fatal(err)
		}
		pod := read(c)
		container := pod.Spec.Containers[0]
		if container.Image != "docker.io/rancher/hardened-kubernetes:v1.36.3" || container.Env[1].Value != flavourtest.Version {
			t.Errorf("%+v", container)
		}
		mounted := func(path string) bool {
			return slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path })
		}
		if mounted(s.data.Server()) != (c == apiServer) || mounted(s.data.TLS("server-ca.crt")) == (c == apiServer) ||
			mounted(certs) != (c == scheduler) {
			t.Errorf("%s has %+v", c, container.VolumeMounts)
		}
	}

	// The pods of a member that was removed are ended, but not those of one that has joined again under another name.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{etcdRemoved: "n1-before"}}}
	if err := s.leavePods(node); err != nil || !exists(filepath.Join(string(s.manifests()), "etcd.yaml")) {
		t.Errorf("a former member: %v", err)
	}
	if node.Annotations[etcdRemoved], err = s.etcdName(); err != nil {
		t.Fatal(err)
	}
	err = s.leavePods(node)
	if left, _ := filepath.Glob(filepath.Join(string(s.manifests()), "*.yaml")); err != nil || len(left) > 0 ||
		!exists(s.data.Etcd("tombstone")) {
		t.Errorf("%v are left: %v", left, err)
	}
	if err := s.startRuntime(t.Context()); err == nil || !strings.Contains(err.Error(), "disable-agent: ") {
		t.Errorf("a server without a kubelet: %v", err)
	}
}
