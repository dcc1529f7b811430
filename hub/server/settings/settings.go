// Package settings holds what an operator sets once for the whole hub and what controllers and gateway both need to know. It is a
// plain value: nothing here reads a cluster, a file or the environment.
package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Defaults of the fields of Settings that have one.
const (
	DefaultInstallerImagePrefix = "rancher/system-agent-installer-"
	DefaultSystemNamespace      = "cattle-system"
	DefaultClusterAgentImage    = "drover/cluster-agent"
)

// Settings is valid for the life of the process.
type Settings struct {
	// ServerURL is the https URL, without a slash at its end, under which machines reach the gateway.
	ServerURL string `json:"serverURL"`
	// CACerts are the PEM certificates that machines must trust for ServerURL.
	CACerts []byte `json:"caCerts,omitempty"`
	// InstallerImagePrefix is put before "<runtime>:<version>" to name an installer image.
	InstallerImagePrefix string `json:"installerImagePrefix,omitempty"`
	// SystemDefaultRegistry is put before every system image; empty means the image's own registry.
	SystemDefaultRegistry string `json:"systemDefaultRegistry,omitempty"`
	// PullSecrets are the names of Secrets of type kubernetes.io/dockerconfigjson in SystemNamespace. The machines of every cluster that takes
	// its images from SystemDefaultRegistry, and the cluster-agents of imported clusters, are given the first one's credentials for it.
	PullSecrets []string `json:"pullSecrets,omitempty"`
	// ClusterAgentImage is the image of the cluster-agent, with its tag.
	ClusterAgentImage string `json:"clusterAgentImage,omitempty"`
	// RKE2Prime asks for the edition of RKE2 with long support in clusters that do not say themselves what they want.
	RKE2Prime bool `json:"rke2Prime,omitempty"`
	// SystemNamespace is where the hub keeps its own Secrets.
	SystemNamespace string `json:"systemNamespace,omitempty"`
	// GatewayCASecret names a Secret of type kubernetes.io/tls in SystemNamespace with the certificate authority that the gateway uses instead
	// of one of the hub's own. Only the gateway and what starts it need it.
	GatewayCASecret string `json:"-"`
}

// The ConfigMap in SystemNamespace in which a hub tells its Settings to commands that have to know them. There is no secret among them.
const (
	ConfigMapName = "drover-settings"
	// DataKey holds the Settings as JSON. ReleaseDataKey is "true" where the hub has release data beyond what it was built with.
	DataKey        = "settings"
	ReleaseDataKey = "releaseData"
)

// CAChecksum is the lower-case hex SHA-256 of CACerts as machines download them, or empty where there are none.
func (s Settings) CAChecksum() string {
	if len(s.CACerts) == 0 {
		return ""
	}
	sum := sha256.Sum256(s.CACerts)
	return hex.EncodeToString(sum[:])
}

// InstallerImage names the image that installs a version of a runtime ("k3s" or "rke2"). A "+" of the version becomes "-", since a
// tag may not hold it.
func (s Settings) InstallerImage(runtime, version string) string {
	prefix := s.InstallerImagePrefix
	if prefix == "" {
		prefix = DefaultInstallerImagePrefix
	}
	image := prefix + runtime + ":" + strings.ReplaceAll(version, "+", "-")
	return s.inRegistry(image)
}

// AgentImage names the image of the cluster-agent.
func (s Settings) AgentImage() string {
	image := s.ClusterAgentImage
	if image == "" {
		image = DefaultClusterAgentImage
	}
	return s.inRegistry(image)
}

// inRegistry puts the registry before an image, unless an operator has named it with the registry already.
func (s Settings) inRegistry(image string) string {
	if s.SystemDefaultRegistry == "" || strings.HasPrefix(image, s.SystemDefaultRegistry+"/") {
		return image
	}
	return s.SystemDefaultRegistry + "/" + image
}

// CheckRegistry returns an error for what cannot be put before the name of an image; an empty registry can.
func CheckRegistry(registry string) error {
	if strings.Contains(registry, "//") || strings.HasSuffix(registry, "/") || strings.ContainsAny(registry, " \t\r\n@") {
		return fmt.Errorf("must be a host, with a port or a path where it has one, such as registry.example.com:5000, got %q", registry)
	}
	return nil
}
