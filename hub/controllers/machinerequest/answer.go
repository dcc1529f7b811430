package machinerequest

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	hubapierrors "github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/message"
)

// refusal is an error that a retry does not cure. Its text is for the user who registers the machine.
type refusal struct{ text string }

func (r refusal) Error() string { return r.text }

func refuse(format string, args ...any) error { return refusal{fmt.Sprintf(format, args...)} }

// pending is an error that ends without the user: the machine waits. Its text is for the user who registers the machine. Nothing but time
// causes the next reconcile.
type pending struct{ text string }

func (p pending) Error() string { return p.text }

// errWait is returned where an event of a watch causes the next reconcile, or the machine tries again.
var errWait = errors.New("waiting for the cluster")

// errAgain is returned where nothing but time causes the next reconcile.
var errAgain = errors.New("waiting for the cache")

// againAfter is the time until that.
const againAfter = time.Second

// maxExplanation bounds what a machine reads of the answer of the API server, in bytes.
const maxExplanation = 512

// explain writes to a request that the API server does not take the objects of the machine, as with a quota of the namespace or a policy in
// an admission webhook. There is no Machine yet whose condition could say so. The hub refuses nothing: the machine retries.
func (r *Reconciler) explain(ctx context.Context, request *corev1.Secret, err error) error {
	if !hubapierrors.IsRefused(err) {
		return nil
	}
	return r.say(ctx, request, err.Error())
}

// say writes to a request what it waits for.
func (r *Reconciler) say(ctx context.Context, request *corev1.Secret, why string) error {
	text := message.Bound(why, maxExplanation)
	if request.Annotations[rkev1.MachineRequestWaitingAnnotation] == text {
		return nil
	}
	return r.answer(ctx, request, func(meta *metav1.ObjectMeta) {
		metav1.SetMetaDataAnnotation(meta, rkev1.MachineRequestWaitingAnnotation, text)
	})
}

func (r *Reconciler) answer(ctx context.Context, request *corev1.Secret, set func(*metav1.ObjectMeta)) error {
	changed := request.DeepCopy()
	set(&changed.ObjectMeta)
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(request), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("answering a machine request: %w", err)
	}
	return nil
}
