package clusteragent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Names of what the manifest makes. They are those that clusters know already, so that a cluster which is adopted gets no second agent.
const (
	Namespace      = "cattle-system"
	ServiceAccount = "cattle"
	Deployment     = "cattle-cluster-agent"
	// IdentitySecret is where the agent keeps its own credential. The agent makes it.
	IdentitySecret = "cattle-cluster-agent-identity"
	// PullSecret has the credentials for the registry of the agent's image.
	PullSecret = "cattle-cluster-agent-pull-secret"
	// AuthEndpointName is the DaemonSet of the authorized cluster endpoint.
	AuthEndpointName = "kube-api-auth"
	// ControllersGroup is the group that the hub's controllers are in where the hub did not make the cluster's authority.
	ControllersGroup = "drover:controllers"
	// MastersGroup may do everything in a cluster.
	MastersGroup = "system:masters"

	credentialPrefix = "cattle-credentials-"
	credentialMount  = "/cattle-credentials"
)

// Environment variables of the container by which the agent finds the hub.
const (
	envServer         = "CATTLE_SERVER"
	envCAChecksum     = "CATTLE_CA_CHECKSUM"
	envCluster        = "CATTLE_CLUSTER"
	envCredentialName = "CATTLE_CREDENTIAL_NAME"
)

// Input is everything that a manifest is made of.
type Input struct {
	// ServerURL is where the agent reaches the hub, CACerts the PEM certificates that it must trust there; empty for those of the system.
	ServerURL string
	CACerts   []byte
	// Cluster is the name of the management Cluster, and Token a registration token of it.
	Cluster, Token string
	// Image of the agent, with its registry.
	Image string
	// PullConfig is a Docker configuration file with the credentials for that registry; empty for none.
	PullConfig []byte
	// Env are variables of the cluster's owner. Those that the agent finds the hub by are left out.
	Env []rkev1.EnvVar
	// Customization is the owner's; nil for none.
	Customization *rkev1.AgentDeploymentCustomization
	// ControlPlaneTaints are those of the control plane's Nodes, which the agent tolerates.
	ControlPlaneTaints []corev1.Taint
	// Replicas is 1 or 2.
	Replicas int32
	// AllowMasters lets the hub's controllers and administrators do everything in the cluster through the agent. It is for clusters whose
	// machines get their plans from the hub: it runs programs as root on their servers, and could do everything there anyway.
	AllowMasters bool
	// AuthEndpoint is set where users may reach the cluster's API directly with tokens of the hub.
	AuthEndpoint *AuthEndpoint
}

// AuthEndpoint is what the authorized cluster endpoint checks tokens with.
type AuthEndpoint struct {
	// Host is the loopback address at which API servers ask, in brackets where it is one of IPv6.
	Host string
	// PublicKeys are the hub's, as a JSON Web Key Set.
	PublicKeys []byte
}

// ValidName reports whether the API server of any version takes a name of a variable.
func ValidName(name string) bool { return len(validation.IsEnvVarName(name)) == 0 }

// Reserved reports whether a variable is one of those that the agent finds the hub by, which nobody else can set.
func Reserved(name string) bool {
	switch name {
	case envServer, envCAChecksum, envCluster, envCredentialName:
		return true
	}
	return false
}

func (in Input) check() error {
	for _, field := range []struct{ name, value string }{
		{"ServerURL", in.ServerURL}, {"Cluster", in.Cluster}, {"Token", in.Token}, {"Image", in.Image},
	} {
		if field.value == "" {
			return fmt.Errorf("making the manifest of the cluster-agent: %s is needed", field.name)
		}
	}
	if in.Replicas < 1 || in.Replicas > 2 {
		return fmt.Errorf("making the manifest of the cluster-agent: Replicas is %d, it must be 1 or 2", in.Replicas)
	}
	if e := in.AuthEndpoint; e != nil && (len(e.PublicKeys) == 0 || e.Host == "") {
		return errors.New("making the manifest of the cluster-agent: AuthEndpoint needs Host and PublicKeys")
	}
	return nil
}

// credentialName names the Secret with the registration token. Another token gives another name, so that the agent starts again with it.
func (in Input) credentialName() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{in.ServerURL, in.Token, Namespace}, ".")))
	return credentialPrefix + hex.EncodeToString(sum[:])[:10]
}

func (in Input) caChecksum() string {
	if len(in.CACerts) == 0 {
		return ""
	}
	sum := sha256.Sum256(in.CACerts)
	return hex.EncodeToString(sum[:])
}

func (in Input) customization() rkev1.AgentDeploymentCustomization {
	if in.Customization == nil {
		return rkev1.AgentDeploymentCustomization{}
	}
	return *in.Customization
}

func (in Input) scheduling() rkev1.AgentSchedulingCustomization {
	if s := in.customization().SchedulingCustomization; s != nil {
		return *s
	}
	return rkev1.AgentSchedulingCustomization{}
}
