package management

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ownership"
)

// maxNameAttempts bounds the search for a name that no other cluster has.
const maxNameAttempts = 16

var namePattern = regexp.MustCompile(`^c-m-[a-z0-9]{8}$`)

// Owner is the cluster that a management Cluster is made for.
type Owner struct {
	Namespace, Name string
	UID             types.UID
}

// Labels tie what is made to the owner.
func (o Owner) Labels() map[string]string {
	return ownership.Labels(o.key())
}

// Owns tells whether an object was made for the owner.
func (o Owner) Owns(object client.Object) bool { return ownership.IsOf(object, o.key()) }

func (o Owner) key() client.ObjectKey { return client.ObjectKey{Namespace: o.Namespace, Name: o.Name} }

// name derives the name of a management Cluster from what tells its owner from all others; attempt is for names that are taken already.
func (o Owner) name(attempt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%d", o.Namespace, o.Name, o.UID, attempt))
	return "c-m-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
}

// FreeName finds a name that no other owner's management Cluster has.
func (o Owner) FreeName(ctx context.Context, from client.Reader) (string, error) {
	for attempt := range maxNameAttempts {
		name := o.name(attempt)
		existing := &managementv3.Cluster{}
		found, err := read(ctx, from, name, existing)
		if err != nil {
			return "", err
		}
		if !found || o.Owns(existing) {
			return name, nil
		}
	}
	return "", fmt.Errorf("finding a name for the management Cluster: %d names are taken", maxNameAttempts)
}

// Problem is why a management Cluster cannot be made: a reason in CamelCase with the words for it.
type Problem struct{ Reason, Message string }

// Check tells why a name, which anybody may write into an annotation, cannot be the owner's; nil if it can. Whoever may write a cluster must
// not get at another cluster's tokens, or at a namespace of somebody else's, through it.
func (o Owner) Check(ctx context.Context, from client.Reader, name string) (*Problem, error) {
	if !namePattern.MatchString(name) {
		return &Problem{"InvalidName", fmt.Sprintf("The annotation %s holds %q: it must look like c-m-abcdefgh; have an administrator remove it to get a new name",
			rkev1.ManagementClusterNameAnnotation, name)}, nil
	}
	for _, object := range []client.Object{&managementv3.Cluster{}, &corev1.Namespace{}} {
		found, err := read(ctx, from, name, object)
		if err != nil {
			return nil, err
		}
		if found && !o.Owns(object) {
			return &Problem{"NameTaken", fmt.Sprintf("%s, named by the annotation %s, was not made for this Cluster: its labels %s and %s name another one, or none",
				name, rkev1.ManagementClusterNameAnnotation, rkev1.OwnerClusterNamespaceLabel, rkev1.OwnerClusterNameLabel)}, nil
		}
		if found && !object.GetDeletionTimestamp().IsZero() {
			return &Problem{"Deleting", fmt.Sprintf("Waiting for the old %s to be gone; its deletion began at %s", name, object.GetDeletionTimestamp())}, nil
		}
	}
	return nil, nil
}

// NamespaceOf is where registration tokens and machine requests are. It goes with the management Cluster.
func (o Owner) NamespaceOf(management *managementv3.Cluster) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name:   management.Name,
			Labels: o.Labels(),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(management, managementv3.GroupVersion.WithKind("Cluster")),
			},
		},
	}
}

// Token is a registration token of the management Cluster.
func (o Owner) Token(managementName, name string, purpose managementv3.RegistrationPurpose) *managementv3.ClusterRegistrationToken {
	return &managementv3.ClusterRegistrationToken{
		ObjectMeta: metav1.ObjectMeta{Namespace: managementName, Name: name, Labels: o.Labels()},
		Spec:       managementv3.ClusterRegistrationTokenSpec{ClusterName: managementName, Purpose: purpose},
	}
}

func read(ctx context.Context, from client.Reader, name string, into client.Object) (bool, error) {
	err := from.Get(ctx, client.ObjectKey{Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, name, err)
	}
	return true, nil
}
