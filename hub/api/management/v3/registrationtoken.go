package v3

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterRegistrationToken lets machines and agents introduce themselves to a cluster. How to know the token is in the Secret that
// status.tokenSecretName names; the token itself is kept nowhere. Commands of the status hold {token} in its place.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterregistrationtokens,scope=Namespaced,shortName=crt
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`,description="The management Cluster"
// +kubebuilder:printcolumn:name="Purpose",type=string,JSONPath=`.spec.purpose`,description="Who may use it"
// +kubebuilder:printcolumn:name="Roles",type=string,JSONPath=`.spec.roles`,description="The roles that a machine may register with"
// +kubebuilder:printcolumn:name="Secret",type=string,JSONPath=`.status.tokenSecretName`,description="Secret with its hash"
// +kubebuilder:printcolumn:name="Uses",type=integer,JSONPath=`.status.uses`,description="How often it was used, where that is bounded"
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.expiresAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec) || !has(oldSelf.spec)",message="spec cannot be removed"
type ClusterRegistrationToken struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec ClusterRegistrationTokenSpec `json:"spec,omitempty"`
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ClusterRegistrationTokenStatus `json:"status,omitempty"`
}

// ClusterRegistrationTokenSpec says for which cluster and for how long.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gracePeriod) || !has(self.ttl) || self.ttl == 0 || self.gracePeriod < self.ttl",message="spec.gracePeriod must be shorter than spec.ttl"
// +kubebuilder:validation:XValidation:rule="self.clusterName == oldSelf.clusterName",message="spec.clusterName cannot be changed"
// +kubebuilder:validation:XValidation:rule="has(self.made) == has(oldSelf.made)",message="spec.made cannot be added or removed; make another ClusterRegistrationToken"
// +kubebuilder:validation:XValidation:rule="!has(self.made) || has(self.purpose) || (oldSelf.hasValue() && has(oldSelf.value().made) && !has(oldSelf.value().purpose))",optionalOldSelf=true,message="spec.purpose is required with spec.made: set Machines for a command that adds machines, Agents for a cluster-agent"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.purpose) || has(self.purpose) && self.purpose == oldSelf.purpose",message="spec.purpose cannot be changed once it is set; make another ClusterRegistrationToken"
// +kubebuilder:validation:XValidation:rule="!has(self.roles) || has(self.purpose) && self.purpose == 'Machines'",message="spec.roles needs spec.purpose Machines: agents have no roles"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.roles) || has(self.roles) && self.roles.all(r, r in oldSelf.roles)",message="spec.roles can only be narrowed; make another ClusterRegistrationToken for other roles"
type ClusterRegistrationTokenSpec struct {
	// ClusterName is the name of the management Cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName"`
	// TTL is in minutes how long a token is good before a new one takes its place: at least 30, at most 52560000, which is a hundred
	// years; unset or 0 means for ever.
	// +optional
	// +kubebuilder:validation:Maximum=52560000
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 30",message="spec.ttl must be 0 or at least 30 minutes"
	TTL *int64 `json:"ttl,omitempty"`
	// GracePeriod is in minutes how long the token before is still good: at least 10; unset means 80 % of TTL.
	// +optional
	// +kubebuilder:validation:Maximum=52560000
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 10",message="spec.gracePeriod must be 0 or at least 10 minutes"
	GracePeriod *int64 `json:"gracePeriod,omitempty"`
	// Purpose says who may use it: Machines that join the cluster, or Agents that connect its Kubernetes API. Whoever has a token for agents
	// can pose as the cluster's API, so that commands for machines come with tokens for machines only. Unset means both, as tokens of another
	// hub need it; a token with spec.made has a purpose. Once set it stays.
	// +optional
	Purpose RegistrationPurpose `json:"purpose,omitempty"`
	// Roles are the roles that a machine may register with; unset means any. They can only be narrowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	Roles []MachineRole `json:"roles,omitempty"`
	// MaxUses is how many machines and agents may introduce themselves with it; unset or 0 means any number. One that comes again with an
	// identity of its own is not counted again.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxUses int64 `json:"maxUses,omitempty"`
	// Made is a token that its maker made and keeps: the hub is told only how to know it. Without it the hub makes the token.
	// +optional
	Made *MadeToken `json:"made,omitempty"`
}

// RegistrationPurpose says who may use a registration token.
//
// +kubebuilder:validation:Enum=Machines;Agents
type RegistrationPurpose string

const (
	// MachinesPurpose is for machines that join the cluster.
	MachinesPurpose RegistrationPurpose = "Machines"
	// AgentsPurpose is for agents that connect the cluster's Kubernetes API.
	AgentsPurpose RegistrationPurpose = "Agents"
)

// Serves reports whether a token may be used for a purpose.
func (s *ClusterRegistrationTokenSpec) Serves(purpose RegistrationPurpose) bool {
	return s.Purpose == "" || s.Purpose == purpose
}

// MachineRole is what a machine does in its cluster.
//
// +kubebuilder:validation:Enum=Etcd;ControlPlane;Worker
// +kubebuilder:validation:MaxLength=16
type MachineRole string

// The roles of machines. The install script has the flags --etcd, --controlplane and --worker for them.
const (
	// EtcdRole is of machines with a member of etcd.
	EtcdRole MachineRole = "Etcd"
	// ControlPlaneRole is of machines with an API server.
	ControlPlaneRole MachineRole = "ControlPlane"
	// WorkerRole is of machines that run workloads.
	WorkerRole MachineRole = "Worker"
)

// Excluded returns those of the roles that a machine may not register with.
func (s *ClusterRegistrationTokenSpec) Excluded(roles []MachineRole) []MachineRole {
	if len(s.Roles) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(roles), func(role MachineRole) bool { return slices.Contains(s.Roles, role) })
}

// MadeToken is how to know a token "<id>.<secret>" without having it.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.made cannot be changed; make another ClusterRegistrationToken"
type MadeToken struct {
	// ID is the public part, before the dot.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{10}$`
	ID string `json:"id"`
	// Hash is the lower-case hex SHA-256 of the whole token, whose secret has to be of at least 128 random bits.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Hash string `json:"hash"`
}

// ClusterRegistrationTokenStatus is what to run on machines.
type ClusterRegistrationTokenStatus struct {
	// Conditions: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// TokenSecretName names the Secret with the token's hash, in the same namespace.
	// +optional
	TokenSecretName string `json:"tokenSecretName,omitempty"`
	// ExpiresAt is when a new token takes the place of this one.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// GracePeriodExpiresAt is until when the token before is good.
	// +optional
	GracePeriodExpiresAt *metav1.Time `json:"gracePeriodExpiresAt,omitempty"`
	// Uses is how many machines and agents have introduced themselves with it, where spec.maxUses bounds them.
	// +optional
	Uses int64 `json:"uses,omitempty"`
	// Command imports an existing cluster.
	// +optional
	Command string `json:"command,omitempty"`
	// InsecureCommand is Command for a hub whose certificate the machine does not know: whoever is in between could give the cluster another
	// manifest.
	// +optional
	InsecureCommand string `json:"insecureCommand,omitempty"`
	// VerifiedCommand is Command for a hub with an authority of its own: it fetches the authority, checks it by its checksum, and downloads
	// the manifest from nobody else. The token is in no argument. Empty where the hub has none.
	// +optional
	VerifiedCommand string `json:"verifiedCommand,omitempty"`
	// ManifestURL is where Command gets its manifest.
	// +optional
	ManifestURL string `json:"manifestUrl,omitempty"`
	// NodeCommand registers a Linux machine; add --etcd, --controlplane and --worker for its roles, of those that spec.roles allows.
	// +optional
	NodeCommand string `json:"nodeCommand,omitempty"`
	// InsecureNodeCommand is NodeCommand for a hub whose certificate the machine does not know; the certificate is then checked by its
	// checksum.
	// +optional
	InsecureNodeCommand string `json:"insecureNodeCommand,omitempty"`
	// VerifiedNodeCommand is NodeCommand for a hub with an authority of its own: it fetches the authority, checks it by its checksum, and
	// downloads the script from nobody else. The token is in no argument. Empty where the hub has none.
	// +optional
	VerifiedNodeCommand string `json:"verifiedNodeCommand,omitempty"`
	// WindowsNodeCommand registers a Windows machine.
	// +optional
	WindowsNodeCommand string `json:"windowsNodeCommand,omitempty"`
	// InsecureWindowsNodeCommand is WindowsNodeCommand for a hub whose certificate the machine does not know.
	// +optional
	InsecureWindowsNodeCommand string `json:"insecureWindowsNodeCommand,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// The token Secret.
const (
	// TokenSecretPrefix comes before the ClusterRegistrationToken's name in the name of its Secret.
	TokenSecretPrefix = "crt-token-"
	// TokenIDKey is the key of the public part of the token.
	TokenIDKey = "tokenID"
	// TokenHashKey is the key of the lower-case hex SHA-256 of the whole token.
	TokenHashKey = "tokenHash"
	// PreviousTokenIDKey is the key of the public part of the token before a rotation, which is valid until GracePeriodExpiresAtKey.
	PreviousTokenIDKey = "previousTokenID"
	// PreviousTokenHashKey is the key of the hash of that token.
	PreviousTokenHashKey = "previousTokenHash"
	// UsedByKey lists, one in a line, hashes of who has used a token whose uses are bounded.
	UsedByKey = "usedBy"
	// TokenKey is the key of a whole token in a Secret that another hub wrote. The token is accepted and replaced by its hash.
	TokenKey = "token"
	// PreviousTokenKey is the key of such a token before a rotation.
	PreviousTokenKey = "previousToken"
	// ExpiresAtKey is the key of the time (RFC 3339) at which the token expires.
	ExpiresAtKey = "expiresAt"
	// GracePeriodExpiresAtKey is the key of the time (RFC 3339) at which the token before a rotation expires.
	GracePeriodExpiresAtKey = "gracePeriodExpiresAt"
	// RegistrationTokenLabel is "true" on every token Secret. The gateway watches the Secrets that have it, to know a token when it sees one.
	RegistrationTokenLabel = "management.cattle.io/registration-token"
	// TokenPlaceholder stands for the token in commands.
	TokenPlaceholder = "{token}"
	// DefaultTokenName is the ClusterRegistrationToken that every cluster has.
	DefaultTokenName = "default-token"
	// AgentTokenName is the one that the hub gives to the cluster-agent that plans deploy.
	AgentTokenName = "agent-token"
	// DeleteExpiredAnnotation is "true" on a ClusterRegistrationToken that is to go when it has expired.
	DeleteExpiredAnnotation = "management.cattle.io/delete-expired"
)

// GetConditions returns the conditions of the status.
func (t *ClusterRegistrationToken) GetConditions() []metav1.Condition { return t.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (t *ClusterRegistrationToken) SetConditions(conditions []metav1.Condition) {
	t.Status.Conditions = conditions
}

// ClusterRegistrationTokenList is a list of ClusterRegistrationToken.
//
// +kubebuilder:object:root=true
type ClusterRegistrationTokenList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []ClusterRegistrationToken `json:"items"`
}
