package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/e2e/distro/internal/agent"
	"github.com/drover-dev/drover/e2e/distro/internal/bootstrap"
	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
	"github.com/drover-dev/drover/e2e/distro/internal/staticpod"
)

// initialAnnotation keeps how a member of etcd was started first, so that its configuration stays as it is.
const initialAnnotation = "etcd.k3s.io/initial"

// cpuRequests are those of RKE2. It asks for memory, too, which hosts of a lab have together and not each.
var cpuRequests = map[string]string{etcdMember: "200m", apiServer: "250m", controllerManager: "200m", scheduler: "100m"}

func (s *server) manifests() staticpod.Folder { return staticpod.Folder(s.data.PodManifests()) }

// startRuntime starts the container runtime, in which pods of an earlier start may run. It ends those that shall not.
func (s *server) startRuntime(ctx context.Context) error {
	if !flavour.Current.StaticPods {
		return nil
	}
	if s.DisableAgent {
		return errors.New("disable-agent: the control plane runs in the kubelet of this node")
	}
	s.node = agent.NewNode(s.nodeOptions())
	if err := s.node.StartRuntime(ctx); err != nil {
		return err
	}
	forced := exists(s.data.ForceRestart())
	for _, c := range config.StaticPods {
		if forced || !s.runs(c) || c == etcdMember && exists(s.data.Etcd("tombstone")) {
			if err := s.manifests().Remove(c); err != nil {
				return err
			}
		}
	}
	if err := s.node.ReconcilePods(ctx); err != nil || !forced {
		return err
	}
	return os.Remove(s.data.ForceRestart())
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// startKubelet starts kubelet with etcd's manifest, and with those of the other components that are still right. Nothing may change a
// manifest from here on until the Kubernetes API is up; see staticpod.Reconcile.
func (s *server) startKubelet(ctx context.Context) error {
	if !flavour.Current.StaticPods {
		return nil
	}
	for _, c := range config.StaticPods {
		if !s.runs(c) {
			continue
		}
		if c == etcdMember {
			if err := s.writeEtcdPod(ctx); err != nil {
				return err
			}
			continue
		}
		raw, err := s.manifest(c)
		if err == nil && !s.manifests().Has(c, raw) {
			err = s.manifests().Remove(c)
		}
		if err != nil {
			return err
		}
	}
	if err := s.node.ReconcilePods(ctx); err != nil {
		return err
	}
	return s.node.StartKubelet(ctx)
}

// writeEtcdPod writes the manifest of this server's member.
func (s *server) writeEtcdPod(ctx context.Context) error {
	if err := s.honourTombstone(); err != nil {
		return err
	}
	isMember := exists(s.data.Etcd("member"))
	plan, err := s.planEtcd(ctx)
	if err != nil {
		return err
	}
	var first initialOptions
	_, annotations := s.manifests().Metadata(etcdMember)
	if isMember && json.Unmarshal([]byte(annotations[initialAnnotation]), &first) == nil && first.Cluster != "" {
		plan.initialCluster, plan.state = first.Cluster, first.State
	}
	file, err := s.writeEtcdConfig(plan)
	if err != nil {
		return err
	}
	initial, err := json.Marshal(initialOptions{s.peerURL(), plan.initialCluster, plan.state})
	if err != nil {
		return err
	}
	pod, err := s.pod(etcdMember, agent.EtcdImage, []string{"--config-file=" + file})
	if err != nil {
		return err
	}
	pod.Annotations = map[string]string{initialAnnotation: string(initial)}
	pod.Dirs = []string{s.data.Etcd()}
	for _, name := range []string{"server-ca.crt", "server-client.crt", "server-client.key", "peer-ca.crt", "peer-server-client.crt",
		"peer-server-client.key"} {
		pod.Files = append(pod.Files, s.data.TLS("etcd", name))
	}
	pod.Health = staticpod.Probe(corev1.URISchemeHTTP, 2381, "/health?serializable=true")
	raw, err := pod.Manifest()
	if err != nil {
		return err
	}
	return s.manifests().Write(etcdMember, raw)
}

// initialOptions are those of a member's first start, in the spelling of RKE2.
type initialOptions struct {
	Peer    string `json:"initial-advertise-peer-urls,omitempty"`
	Cluster string `json:"initial-cluster,omitempty"`
	State   string `json:"initial-cluster-state,omitempty"`
}

// pod is what all components have alike.
func (s *server) pod(component, image string, args []string) (staticpod.Pod, error) {
	self, err := os.Executable()
	if err != nil {
		return staticpod.Pod{}, err
	}
	image = flavour.Image(image)
	if s.SystemDefaultRegistry != "" {
		image = s.SystemDefaultRegistry + "/" + image
	} else {
		image = "docker.io/" + image
	}
	env := []string{flavour.VersionVariable + "=" + flavour.Version}
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasSuffix(strings.ToLower(name), "_proxy") {
			env = append(env, e)
		}
	}
	slices.Sort(env)
	return staticpod.Pod{Component: component, Image: image, Args: args, Env: append(env, s.ExtraEnv[component]...),
		Programs: filepath.Dir(self), Mounts: s.ExtraMounts[component], CPU: cpuRequests[component]}, nil
}

// trusted are the folders with the authorities that a machine trusts.
var trusted = []string{"/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/ca-certificates", "/usr/local/share/ca-certificates",
	"/usr/share/ca-certificates"}

// manifest is that of a component other than etcd.
func (s *server) manifest(component string) ([]byte, error) {
	pod, err := s.pod(component, agent.KubernetesImage, s.args(component))
	if err != nil {
		return nil, err
	}
	switch component {
	case apiServer:
		// All of the folder, so that the API server sees files that are replaced.
		pod.Dirs, pod.Changing = []string{s.data.Server()}, []string{s.encryptionFile()}
	case controllerManager:
		pod.Health = staticpod.Probe(corev1.URISchemeHTTPS, 10257, "/healthz")
	case scheduler:
		pod.Health = staticpod.Probe(corev1.URISchemeHTTPS, 10259, "/readyz")
	}
	if component != scheduler {
		for _, dir := range trusted {
			if exists(dir) {
				pod.Dirs = append(pod.Dirs, dir)
			}
		}
	}
	return pod.Manifest()
}

func (s *server) writePod(component string) error {
	raw, err := s.manifest(component)
	if err != nil {
		return err
	}
	s.log.Info("Writing the manifest of a static pod", "component", component)
	return s.manifests().Write(component, raw)
}

// askRunningEtcd asks the etcd that runs from an earlier start for the shared files. One that does not answer is ended, and then none runs.
func (s *server) askRunningEtcd(ctx context.Context) (files bootstrap.Files, running bool, err error) {
	if !flavour.Current.StaticPods || s.ClusterReset || !listens(localEtcdAddress) {
		return nil, false, nil
	}
	files, err = s.askSerializable(ctx)
	if err == nil || errors.Is(err, bootstrap.ErrToken) {
		return files, true, err
	}
	s.log.Warn("The etcd of an earlier start does not answer and is ended", "error", err)
	if err := s.manifests().Remove(etcdMember); err != nil {
		return nil, true, err
	}
	if err := s.node.ReconcilePods(ctx); err != nil {
		return nil, true, err
	}
	return nil, false, nil
}

// askSerializable needs no quorum.
func (s *server) askSerializable(ctx context.Context) (bootstrap.Files, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := s.etcdClient("https://" + localEtcdAddress)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	got, err := c.Get(ctx, bootstrap.Prefix, clientv3.WithPrefix(), clientv3.WithSerializable())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDatastore, err)
	}
	keys := map[string][]byte{}
	for _, kv := range got.Kvs {
		keys[string(kv.Key)] = kv.Value
	}
	return bootstrap.Find(keys, s.tokens.Load().server)
}

// endPods ends all static pods of the control plane, also for the next start of kubelet.
func (s *server) endPods(ctx context.Context) error {
	if !flavour.Current.StaticPods {
		return nil
	}
	if err := s.manifests().Remove(config.StaticPods...); err != nil {
		return err
	}
	if !exists(s.data.Agent("containerd")) {
		return nil // no pod has ever run here
	}
	s.node = agent.NewNode(s.nodeOptions())
	if err := s.node.StartRuntime(ctx); err != nil {
		return err
	}
	return s.node.ReconcilePods(ctx)
}

// leavePods ends the static pods of this server if its Node says that its member was removed from etcd. Its next start joins again.
func (s *server) leavePods(node *corev1.Node) error {
	removed := node.Annotations[etcdRemoved]
	if !flavour.Current.StaticPods || s.DisableEtcd || node.Name != s.NodeName || removed == "" || exists(s.data.Etcd("tombstone")) {
		return nil
	}
	if name, err := s.etcdName(); err != nil || name != removed {
		return err // it has joined again since
	}
	s.log.Warn("This etcd member has been removed from its cluster: restart this server to join again")
	now := []byte(time.Now().UTC().Format(time.RFC3339) + "\n")
	if err := pki.WriteFile(s.data.Etcd("tombstone"), now, 0o600); err != nil {
		return err
	}
	return s.manifests().Remove(config.StaticPods...)
}
