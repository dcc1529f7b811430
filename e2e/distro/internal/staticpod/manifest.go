// Package staticpod writes the manifests of static pods as RKE2 does, and ends pods whose manifest is another one by now. The kubelet
// of the node runs them. It knows nothing of what the pods are for.
package staticpod

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// Pod is a component of the control plane in the network of its node.
type Pod struct {
	// Component is the name of the pod, and of the program in it.
	Component string
	Image     string
	Args      []string
	// Env holds NAME=value.
	Env []string
	// Programs is a folder of the node, which the image has as /usr/local/bin.
	Programs string
	// Dirs are folders of the node that the pod may write to. Those that do not exist are made.
	Dirs []string
	// Files are files of the node that the pod reads, besides those that its arguments name.
	Files []string
	// Changing are files among the arguments that the component reads again whenever they change.
	Changing []string
	// Mounts are of the user's own: source:destination[:ro|rw[:type]].
	Mounts []string
	// CPU is what the pod asks for.
	CPU         string
	Health      *corev1.HTTPGetAction
	Annotations map[string]string
}

// fileHash is the variable that gives a pod with other contents of its files another manifest, so that it is started again.
const fileHash = "FILE_HASH"

// Manifest is the pod's manifest. Its UID changes with everything in it and with the contents of the files.
func (p Pod) Manifest() ([]byte, error) {
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	hash, err := hashOf(files)
	if err != nil {
		return nil, err
	}
	c := corev1.Container{Name: p.Component, Image: p.Image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{p.Component},
		Args: p.Args, Env: []corev1.EnvVar{{Name: fileHash, Value: hash}}}
	for _, text := range p.Env {
		name, value, _ := strings.Cut(text, "=")
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
	if p.CPU != "" {
		cpu, err := resource.ParseQuantity(p.CPU)
		if err != nil {
			return nil, err
		}
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: cpu}
	}
	if p.Health != nil {
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: p.Health}, TimeoutSeconds: 15}
	}
	pod := corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Component, Namespace: metav1.NamespaceSystem, Annotations: p.Annotations,
			Labels: map[string]string{componentLabel: p.Component, tierLabel: tier}},
		Spec: corev1.PodSpec{HostNetwork: true, PriorityClassName: "system-cluster-critical", Containers: []corev1.Container{c}},
	}
	mount := mounter{pod: &pod}
	mount.add("programs", p.Programs, "/usr/local/bin", corev1.HostPathDirectory, true)
	for i, dir := range p.Dirs {
		mount.add(fmt.Sprintf("dir%d", i), dir, dir, corev1.HostPathDirectoryOrCreate, false)
	}
	n := 0
	for _, file := range files {
		if !slices.ContainsFunc(p.Dirs, func(dir string) bool { return strings.HasPrefix(file, dir+"/") }) {
			mount.add(fmt.Sprintf("file%d", n), file, file, corev1.HostPathFile, true)
			n++
		}
	}
	for i, text := range p.Mounts {
		if err := mount.extra(i, text); err != nil {
			return nil, err
		}
	}
	raw, err := yaml.Marshal(pod)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	pod.UID = types.UID(hex.EncodeToString(sum[:16]))
	return yaml.Marshal(pod)
}

// Probe asks a component on its node for its health.
func Probe(scheme corev1.URIScheme, port int32, path string) *corev1.HTTPGetAction {
	return &corev1.HTTPGetAction{Scheme: scheme, Host: "127.0.0.1", Port: intstr.FromInt32(port), Path: path}
}

// files are those that the pod reads, in order: its own, those that its arguments name, and those that kubeconfigs among them name.
func (p Pod) files() ([]string, error) {
	found := map[string]bool{}
	for _, file := range p.Files {
		found[file] = true
	}
	for _, arg := range p.Args {
		name, file, _ := strings.Cut(arg, "=")
		if !filepath.IsAbs(file) || slices.Contains(p.Changing, file) {
			continue
		}
		if info, err := os.Stat(file); err != nil || info.IsDir() {
			continue
		}
		found[file] = true
		if name != "--kubeconfig" {
			continue
		}
		conf, err := clientcmd.LoadFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		for _, c := range conf.Clusters {
			found[c.CertificateAuthority] = true
		}
		for _, a := range conf.AuthInfos {
			found[a.ClientCertificate], found[a.ClientKey] = true, true
		}
	}
	delete(found, "")
	return slices.Sorted(maps.Keys(found)), nil
}

func hashOf(files []string) (string, error) {
	sum := sha256.New()
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, f)
		_ = f.Close()
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// mounter adds folders and files of the node to a pod.
type mounter struct{ pod *corev1.Pod }

func (m mounter) add(name, source, destination string, kind corev1.HostPathType, readOnly bool) {
	spec := &m.pod.Spec
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name,
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: source, Type: &kind}}})
	spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: name, MountPath: destination, ReadOnly: readOnly})
}

// extra adds a mount as RKE2's configuration has it. A type that is not given is that of what is there, or a folder.
func (m mounter) extra(n int, text string) error {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 4 || len(parts) > 2 && parts[2] != "ro" && parts[2] != "rw" {
		return fmt.Errorf("%s-extra-mount: %q is not of the form source:destination[:ro|rw[:type]]", m.pod.Name, text)
	}
	kind := corev1.HostPathDirectoryOrCreate
	if info, err := os.Stat(parts[0]); err == nil {
		kind = corev1.HostPathFile
		if info.IsDir() {
			kind = corev1.HostPathDirectory
		}
	}
	if len(parts) == 4 {
		kind = corev1.HostPathType(parts[3])
	}
	m.add(fmt.Sprintf("extra-mount-%d", n), parts[0], parts[1], kind, len(parts) > 2 && parts[2] == "ro")
	return nil
}
