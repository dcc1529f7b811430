// Package reasons says what follows from the reason of a condition: the status of the condition, whether its Event is a warning, whether
// the timeline calls the phase failed, and whether its message may be copied. Each reason stands here once. It knows no kind of object.
package reasons

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/plan/certificates"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// Reasons that are not those of a rollout, of a refusal, or of Cluster API.
const (
	// VersionInvalid means that the version of the cluster does not have the form of one of k3s or RKE2.
	VersionInvalid = "VersionInvalid"
	// TokensLost means that the Secret with the join tokens of a running cluster is missing or incomplete.
	TokensLost = "TokensLost"
	// CertificateAuthorityLost means that the Secret with a running cluster's certificate authority is missing or invalid.
	CertificateAuthorityLost = "CertificateAuthorityLost"
	// NoCertificateAuthority means that the hub has no certificate authority of the cluster and cannot issue a kubeconfig.
	NoCertificateAuthority = "NoCertificateAuthority"
	// CertificateAuthorityMismatch means that servers of the cluster answer with, or require, certificates of other certificate authorities
	// than the hub has.
	CertificateAuthorityMismatch = "CertificateAuthorityMismatch"
	// KubeconfigRefused means that the kubeconfig Secret of the cluster holds more than data, or belongs to another cluster.
	KubeconfigRefused = "KubeconfigRefused"
	// WaitingForControlPlane means that the control plane has not been initialized.
	WaitingForControlPlane = "WaitingForControlPlane"
	// WaitingForInitialization means that the cluster has not been initialized.
	WaitingForInitialization = "WaitingForInitialization"
	// WaitingForNamespace means that a deletion waits for the namespace of the management Cluster.
	WaitingForNamespace = "WaitingForNamespace"
	// WaitingForManagementCluster means that the management Cluster does not exist yet, or that a deletion waits for it.
	WaitingForManagementCluster = ownership.ReasonWaitingForManagementCluster
	// WaitingForHooks means that an etcd member of a deleted Machine is kept until others have removed their hooks.
	WaitingForHooks = "WaitingForHooks"
	// WaitingForDrain means that an etcd member of a deleted Machine is kept until Cluster API has drained its Node.
	WaitingForDrain = "WaitingForDrain"
	// WaitingForServers means that an etcd member of a deleted Machine is kept until other servers have another join address.
	WaitingForServers = "WaitingForServers"
	// Settling means that one of two etcd members is kept for a moment.
	Settling = "Settling"
	// Removing means that the cluster was asked to remove an etcd member.
	Removing = "Removing"
	// Canceled means that a user has ended an operation.
	Canceled = "Canceled"
	// InternalError means that the hub's request to an API failed; the hub retries.
	InternalError = clusterv1.InternalErrorReason
)

// Reason is what follows from a reason.
type Reason struct {
	// Name is the reason in CamelCase.
	Name string
	// Status is that of a condition of an RKEControlPlane or Machine that is not met for this reason: Unknown while the hub is working on it,
	// False if a user has to act. User interfaces show the one as progress and the other as an error.
	Status metav1.ConditionStatus
	// Benign is true if nobody has to act although the condition may be False: its Event is no warning, and the phase has not failed.
	Benign bool
	// Sensitive is true if the message quotes output of a program, which may contain a secret: Events, timeline and provisioning log, which
	// more users may read, refer to the Machine instead.
	Sensitive bool
}

// table has every reason that differs from {Status: Unknown}.
var table = []Reason{
	{Name: rollout.ReasonPlanFailed, Status: metav1.ConditionFalse, Sensitive: true},
	{Name: rollout.ReasonPlanInvalid, Status: metav1.ConditionFalse},
	{Name: rollout.ReasonPlanPaused, Status: metav1.ConditionFalse},
	{Name: rollout.ReasonPlanCanceled, Status: metav1.ConditionFalse},
	{Name: rollout.ReasonDrainFailed, Status: metav1.ConditionFalse},
	{Name: rollout.ReasonEtcdLost, Status: metav1.ConditionFalse},
	{Name: rollout.ReasonRestoreFailed, Status: metav1.ConditionFalse},
	{Name: rollout.ReasonHubRestored, Status: metav1.ConditionFalse},
	{Name: rollout.ReasonDeleting, Status: metav1.ConditionFalse, Benign: true},
	{Name: ownership.ReasonOwnerMismatch, Status: metav1.ConditionFalse},
	{Name: ownership.ReasonManagementClusterNotOwned, Status: metav1.ConditionFalse},
	{Name: VersionInvalid, Status: metav1.ConditionFalse},
	{Name: TokensLost, Status: metav1.ConditionFalse},
	{Name: CertificateAuthorityLost, Status: metav1.ConditionFalse},
	{Name: NoCertificateAuthority, Status: metav1.ConditionFalse},
	{Name: CertificateAuthorityMismatch, Status: metav1.ConditionFalse},
	{Name: KubeconfigRefused, Status: metav1.ConditionFalse},
	{Name: certificates.ReasonExpireSoon, Status: metav1.ConditionFalse},
	{Name: certificates.ReasonExpired, Status: metav1.ConditionFalse},
	{Name: InternalError, Status: metav1.ConditionFalse},
	{Name: Canceled, Status: metav1.ConditionFalse, Benign: true},
	{Name: WaitingForControlPlane, Status: metav1.ConditionUnknown, Benign: true},
	{Name: WaitingForInitialization, Status: metav1.ConditionUnknown, Benign: true},
	{Name: WaitingForManagementCluster, Status: metav1.ConditionUnknown, Benign: true},
	{Name: WaitingForNamespace, Status: metav1.ConditionUnknown, Benign: true},
	{Name: WaitingForHooks, Status: metav1.ConditionUnknown, Benign: true},
	{Name: WaitingForDrain, Status: metav1.ConditionUnknown, Benign: true},
	{Name: WaitingForServers, Status: metav1.ConditionUnknown, Benign: true},
	{Name: Settling, Status: metav1.ConditionUnknown, Benign: true},
	{Name: Removing, Status: metav1.ConditionUnknown, Benign: true},
	{Name: rollout.ReasonWaitingForNode, Status: metav1.ConditionUnknown, Benign: true},
	{Name: rollout.ReasonWaitingForOthers, Status: metav1.ConditionUnknown, Benign: true},
}

// Get returns the record of a reason. A reason without one is in progress.
func Get(name string) Reason {
	for _, r := range table {
		if r.Name == name {
			return r
		}
	}
	return Reason{Name: name, Status: metav1.ConditionUnknown}
}
