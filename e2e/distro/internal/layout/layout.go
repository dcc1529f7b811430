// Package layout names the files and folders of a node. It makes none of them.
package layout

import "path/filepath"

// Data is the data folder of a node.
type Data string

// Server is a path in the part that only servers have.
func (d Data) Server(parts ...string) string {
	return filepath.Join(append([]string{string(d), "server"}, parts...)...)
}

// Agent is a path in the part that every node has.
func (d Data) Agent(parts ...string) string {
	return filepath.Join(append([]string{string(d), "agent"}, parts...)...)
}

// TLS is a path below the certificates of a server.
func (d Data) TLS(parts ...string) string {
	return d.Server(append([]string{"tls"}, parts...)...)
}

// Cred is a path below the credentials of a server's components.
func (d Data) Cred(parts ...string) string {
	return d.Server(append([]string{"cred"}, parts...)...)
}

// Etcd is a path below the data of etcd.
func (d Data) Etcd(parts ...string) string {
	return d.Server(append([]string{"db", "etcd"}, parts...)...)
}

// PodManifests is the folder of the static pods that this node's kubelet runs.
func (d Data) PodManifests() string { return d.Agent("pod-manifests") }

// ForceRestart is a file that has the next start of a server end the static pods of its control plane first.
func (d Data) ForceRestart() string { return filepath.Join(string(d), "force-restart") }

// CNI is the folder that holds the CNI plugins.
func (d Data) CNI() string { return filepath.Join(string(d), "data", "cni") }

// The places outside the data folder, which are the same on k3s and RKE2.
const (
	ContainerdState  = "/run/k3s/containerd"
	ContainerdSocket = "/run/k3s/containerd/containerd.sock"
	KubeletDir       = "/var/lib/kubelet"
)
