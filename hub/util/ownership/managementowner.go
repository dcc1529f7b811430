package ownership

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
)

// maxNameAttempts bounds the search for a name that no other cluster has.
const maxNameAttempts = 16

var namePattern = regexp.MustCompile(`^c-m-[a-z0-9]{8}$`)

// ManagementOwner is the cluster that a management Cluster is created for.
type ManagementOwner struct {
	Namespace, Name string
	UID             types.UID
}

// IsManagementName returns whether a management Cluster of the hub can have a name.
func IsManagementName(name string) bool { return namePattern.MatchString(name) }

// Labels are on every object that is created for the owner.
func (o ManagementOwner) Labels() map[string]string { return Labels(o.key()) }

// Owns returns whether an object was created for the owner.
func (o ManagementOwner) Owns(object client.Object) bool { return IsOf(object, o.key()) }

func (o ManagementOwner) key() client.ObjectKey {
	return client.ObjectKey{Namespace: o.Namespace, Name: o.Name}
}

// name derives the name of a management Cluster from the identity of its owner. attempt counts names that were taken already.
func (o ManagementOwner) name(attempt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%d", o.Namespace, o.Name, o.UID, attempt))
	return "c-m-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
}

// FreeName returns a name that no management Cluster of another owner has.
func (o ManagementOwner) FreeName(ctx context.Context, from client.Reader) (string, error) {
	for attempt := range maxNameAttempts {
		name := o.name(attempt)
		existing := &managementv3.Cluster{}
		found, err := objects.Get(ctx, from, client.ObjectKey{Name: name}, existing)
		if err != nil {
			return "", err
		}
		if !found || o.Owns(existing) {
			return name, nil
		}
	}
	return "", fmt.Errorf("finding a name for the management Cluster: %d names are taken", maxNameAttempts)
}

// Check returns why a name, which is read from an annotation, cannot be used for the owner; nil if it can. A user who may write a cluster
// must not gain access to the tokens of another cluster, or to another namespace, through it.
func (o ManagementOwner) Check(ctx context.Context, from client.Reader, name string) (*cause.Cause, error) {
	if !IsManagementName(name) {
		return cause.New("InvalidName", "The annotation %s holds %q: it must look like c-m-abcdefgh; have an administrator remove "+
			"it to get a new name",
			rkev1.ManagementClusterNameAnnotation, name), nil
	}
	for _, object := range []client.Object{&managementv3.Cluster{}, &corev1.Namespace{}} {
		found, err := objects.Get(ctx, from, client.ObjectKey{Name: name}, object)
		if err != nil {
			return nil, err
		}
		if found && !o.Owns(object) {
			return cause.New(ReasonNameTaken, "%s, named by the annotation %s, was not created for this Cluster: its labels %s and %s "+
				"name another Cluster, or none",
				name, rkev1.ManagementClusterNameAnnotation, rkev1.OwnerClusterNamespaceLabel, rkev1.OwnerClusterNameLabel), nil
		}
		if found && !object.GetDeletionTimestamp().IsZero() {
			return cause.New("Deleting", "Waiting for deletion of the previous %s, which began at %s", name,
				object.GetDeletionTimestamp()), nil
		}
	}
	return nil, nil
}

// NamespaceOf returns the namespace for registration tokens and machine requests. The management Cluster owns it.
func (o ManagementOwner) NamespaceOf(management *managementv3.Cluster) *corev1.Namespace {
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

// Token returns a registration token of the management Cluster.
func (o ManagementOwner) Token(
	managementName, name string, purpose managementv3.RegistrationPurpose,
) *managementv3.ClusterRegistrationToken {
	return &managementv3.ClusterRegistrationToken{
		ObjectMeta: metav1.ObjectMeta{Namespace: managementName, Name: name, Labels: o.Labels()},
		Spec:       managementv3.ClusterRegistrationTokenSpec{ClusterName: managementName, Purpose: purpose},
	}
}
