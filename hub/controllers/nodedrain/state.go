package nodedrain

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/message"
)

// defaultTimeout is that of a drain whose options have none.
const defaultTimeout = 10 * time.Minute

// maxText bounds what is said of a drain, in bytes. It has the names of Pods, and for each Pod what the API server of the cluster answers.
const maxText = 4 << 10

// state is what the annotations of a plan Secret say about a drain: see the package documentation.
type state struct {
	// requested, uncordon, preDrain, postDrain and done have the options of the request as their value.
	requested, uncordon, preDrain, postDrain, done string
	// problem is why the drain is stuck, waiting what it waits for in its normal course.
	problem, waiting string
	// began is zero until the first Pod is evicted with these options.
	began beginning
	// cordoned is set where this controller has cordoned the Node. One that somebody else has cordoned stays so.
	cordoned bool
}

// beginning is the value of rke.cattle.io/drain-began.
type beginning struct {
	// Options of the request, which another request does not share.
	Options string    `json:"options"`
	At      time.Time `json:"at"`
}

func readState(secret *corev1.Secret) state {
	a := secret.Annotations
	s := state{
		requested: a[rkev1.DrainOptionsAnnotation], preDrain: a[rkev1.PreDrainAnnotation], postDrain: a[rkev1.PostDrainAnnotation],
		uncordon: a[rkev1.UncordonAnnotation], done: a[rkev1.DrainDoneAnnotation], problem: a[rkev1.DrainErrorAnnotation],
		waiting: a[rkev1.DrainWaitingAnnotation], cordoned: a[rkev1.DrainCordonedAnnotation] == "true",
	}
	// What cannot be read was not written by this controller: the timeout starts again.
	if json.Unmarshal([]byte(a[rkev1.DrainBeganAnnotation]), &s.began) != nil || s.began.Options != s.requested {
		s.began = beginning{}
	}
	return s
}

// annotations are those that this controller writes; a key without a value is to be removed.
func (s state) annotations() map[string]string {
	began, cordoned := "", ""
	if raw, err := json.Marshal(s.began); err == nil && !s.began.At.IsZero() {
		began = string(raw)
	}
	if s.cordoned {
		cordoned = "true"
	}
	return map[string]string{
		rkev1.PreDrainAnnotation: s.preDrain, rkev1.PostDrainAnnotation: s.postDrain, rkev1.DrainDoneAnnotation: s.done,
		rkev1.DrainErrorAnnotation: message.Bound(s.problem, maxText), rkev1.DrainWaitingAnnotation: message.Bound(s.waiting, maxText),
		rkev1.DrainBeganAnnotation: began, rkev1.DrainCordonedAnnotation: cordoned,
	}
}

// writeState patches the annotations, if they have changed. At the end of a drain they are removed, with the request and the answers of
// hooks. The patch fails on a conflict with any other writer: another drain may have been requested.
func (r *Reconciler) writeState(ctx context.Context, s *scope) error {
	wanted := s.secret.DeepCopy()
	values := s.state.annotations()
	if s.ended {
		values = state{}.annotations()
		values[rkev1.DrainOptionsAnnotation], values[rkev1.UncordonAnnotation] = "", ""
		for _, hook := range append(s.options.PreDrainHooks, s.options.PostDrainHooks...) {
			values[hook.Annotation] = ""
		}
	}
	for key, value := range values {
		if value == "" {
			delete(wanted.Annotations, key)
		} else {
			wanted.Annotations[key] = value
		}
	}
	if maps.Equal(s.secret.Annotations, wanted.Annotations) {
		return nil
	}
	err := r.Client.Patch(ctx, wanted, client.MergeFromWithOptions(s.secret, client.MergeFromWithOptimisticLock{}), fieldOwner)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the state of the drain: %w", err)
	}
	log := ctrl.LoggerFrom(ctx).WithValues("Machine", s.secret.Namespace+"/"+s.secret.Labels[rkev1.MachineNameLabel])
	switch {
	case s.ended:
		log.Info("Ended a drain")
	case s.state.done != "" && s.secret.Annotations[rkev1.DrainDoneAnnotation] != s.state.done:
		log.Info("Drained a Node")
	}
	return nil
}

// decodeOptions decodes a request.
func decodeOptions(requested string) (options rkev1.DrainOptions, err error) {
	if err := json.Unmarshal([]byte(requested), &options); err != nil {
		return options, fmt.Errorf("annotation %s: invalid drain options: %w", rkev1.DrainOptionsAnnotation, err)
	}
	return options, nil
}

// timeout of a drain with these options.
func timeout(options rkev1.DrainOptions) time.Duration {
	if options.Timeout <= 0 {
		return defaultTimeout
	}
	return seconds(options.Timeout)
}

// seconds is a number of seconds as a duration, or the longest one, 292 years: a larger number would be negative as a duration, and end a
// drain before it has begun. A negative number is none.
func seconds(n int) time.Duration {
	return time.Duration(min(max(int64(n), 0), int64(math.MaxInt64/time.Second))) * time.Second
}
