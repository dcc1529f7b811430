package staticpod

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func manifest(t *testing.T, p Pod) (corev1.Pod, []byte) {
	t.Helper()
	raw, err := p.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(raw, &pod); err != nil {
		t.Fatal(err)
	}
	return pod, raw
}

func TestManifest(t *testing.T) {
	dir := t.TempDir()
	cert, key := write(t, dir+"/tls/c.crt", "c"), write(t, dir+"/tls/c.key", "k")
	conf := write(t, dir+"/k.kubeconfig", `{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "a", "cluster":
		{"certificate-authority": "`+cert+`"}}], "users": [{"name": "a", "user": {"client-key": "`+key+`"}}]}`)
	inside, keys := write(t, dir+"/server/a.crt", "a"), write(t, dir+"/server/keys.json", "1")
	p := Pod{Component: "kube-x", Image: "docker.io/rancher/x:1", Programs: dir, Dirs: []string{dir + "/server"}, Changing: []string{keys},
		Args: []string{"--kubeconfig=" + conf, "--a=" + inside, "--keys=" + keys, "--dir=" + dir, "--none=/no/such/file", "--name=value"},
		Env:  []string{"A=b=c"}, Mounts: []string{dir + "/tls:/in", dir + "/new:/new:ro", "/dev/x:/x:rw:CharDevice"}, CPU: "100m"}
	pod, _ := manifest(t, p)
	var mounts []string
	for i, m := range pod.Spec.Containers[0].VolumeMounts {
		text := string(*pod.Spec.Volumes[i].HostPath.Type) + " " + pod.Spec.Volumes[i].HostPath.Path + " " + m.MountPath
		if m.ReadOnly {
			text += " ro"
		}
		mounts = append(mounts, text)
	}
	want := []string{"Directory " + dir + " /usr/local/bin ro", "DirectoryOrCreate " + dir + "/server " + dir + "/server",
		"File " + conf + " " + conf + " ro", "File " + cert + " " + cert + " ro", "File " + key + " " + key + " ro",
		"Directory " + dir + "/tls /in", "DirectoryOrCreate " + dir + "/new /new ro", "CharDevice /dev/x /x"}
	if diff := cmp.Diff(want, mounts); diff != "" {
		t.Error(diff)
	}
	c := pod.Spec.Containers[0]
	if !pod.Spec.HostNetwork || c.Command[0] != "kube-x" || c.Env[1].Value != "b=c" || pod.Labels["component"] != "kube-x" || pod.UID == "" {
		t.Errorf("%+v", pod)
	}
	write(t, keys, "2")
	if again, _ := manifest(t, p); again.UID != pod.UID {
		t.Error("a file that the component reads again itself starts the pod again")
	}
	for _, file := range []string{inside, key} {
		before, _ := manifest(t, p)
		write(t, file, "new")
		if after, _ := manifest(t, p); after.UID == before.UID {
			t.Errorf("another content of %s does not start the pod again", file)
		}
	}
	for _, bad := range []string{"/a", "/a:/b:rx", "a:b:ro:File:more"} {
		p.Mounts = []string{bad}
		if _, err := p.Manifest(); err == nil {
			t.Errorf("the mount %q was taken", bad)
		}
	}
}

func TestFolder(t *testing.T) {
	f := Folder(filepath.Join(t.TempDir(), "manifests"))
	if err := f.Remove("etcd"); err != nil {
		t.Error(err)
	}
	_, raw := manifest(t, Pod{Component: "etcd", Programs: "/p", Annotations: map[string]string{"a": "b"}})
	if err := f.Write("etcd", raw); err != nil || !f.Has("etcd", raw) || f.Has("etcd", nil) {
		t.Errorf("%v", err)
	}
	uid, annotations := f.Metadata("etcd")
	if uid == "" || annotations["a"] != "b" {
		t.Errorf("%q, %v", uid, annotations)
	}
	if err := f.Remove("etcd", "kube-apiserver"); err != nil {
		t.Error(err)
	}
	if uid, _ := f.Metadata("etcd"); uid != "" {
		t.Errorf("it is still %s", uid)
	}
}

// containers is a container runtime with pods.
type containers struct {
	cri.UnimplementedRuntimeServiceServer
	pods    []*cri.PodSandbox
	removed []string
}

func (c *containers) ListPodSandbox(_ context.Context, r *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	out := &cri.ListPodSandboxResponse{}
	for _, p := range c.pods {
		if p.Labels["tier"] == r.Filter.LabelSelector["tier"] && p.Labels[namespaceLabel] == "kube-system" {
			out.Items = append(out.Items, p)
		}
	}
	return out, nil
}

func (c *containers) ListContainers(_ context.Context, r *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: []*cri.Container{{Id: "in-" + r.Filter.PodSandboxId}}}, nil
}

func (c *containers) StopContainer(_ context.Context, r *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	c.removed = append(c.removed, r.ContainerId)
	return &cri.StopContainerResponse{}, nil
}

func (c *containers) StopPodSandbox(context.Context, *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	return &cri.StopPodSandboxResponse{}, nil
}

func (c *containers) RemovePodSandbox(_ context.Context, r *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	c.removed = append(c.removed, r.PodSandboxId)
	return &cri.RemovePodSandboxResponse{}, nil
}

func TestReconcile(t *testing.T) {
	dir := t.TempDir()
	f := Folder(dir)
	_, raw := manifest(t, Pod{Component: "etcd", Programs: "/p"})
	if err := f.Write("etcd", raw); err != nil {
		t.Fatal(err)
	}
	uid, _ := f.Metadata("etcd")
	pod := func(id, component, uid, source, namespace string) *cri.PodSandbox {
		return &cri.PodSandbox{Id: id, Annotations: map[string]string{sourceAnnotation: source},
			Labels: map[string]string{"component": component, "tier": "control-plane", uidLabel: uid, namespaceLabel: namespace}}
	}
	fake := &containers{pods: []*cri.PodSandbox{
		pod("right", "etcd", uid, "file", "kube-system"), pod("old", "etcd", "another", "file", "kube-system"),
		pod("gone", "kube-scheduler", "x", "file", "kube-system"), pod("foreign", "kube-vip", "x", "file", "kube-system"),
		pod("api", "etcd", "x", "api", "kube-system"), pod("elsewhere", "etcd", "x", "file", "default"),
	}}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, fake)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	if err := Reconcile(t.Context(), socket, f, []string{"etcd", "kube-apiserver", "kube-scheduler"}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"in-old", "old", "in-gone", "gone"}; !slices.Equal(fake.removed, want) {
		t.Errorf("ended %v", fake.removed)
	}
}
