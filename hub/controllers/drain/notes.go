package drain

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// defaultTimeout is how long a drain may take where its options do not say.
const defaultTimeout = 10 * time.Minute

// notes are what the annotations of a plan Secret say about a drain.
type notes struct {
	// asked are the options as they were asked for, the value of all hand-overs.
	asked                               string
	preDrain, postDrain, uncordon, done string
	// problem is what people read of why it does not get on, waiting what it waits for while all is well.
	problem, waiting string
	// began is since when Pods are drained with these options; zero before.
	began beginning
	// cordoned is set where this controller has cordoned the Node. One that somebody else has cordoned stays so.
	cordoned bool
}

// beginning is the value of the annotation that outlives the hub: a timeout starts once.
type beginning struct {
	Options string    `json:"options"`
	At      time.Time `json:"at"`
}

func readNotes(secret *corev1.Secret) notes {
	a := secret.Annotations
	n := notes{
		asked: a[rkev1.DrainOptionsAnnotation], preDrain: a[rkev1.PreDrainAnnotation], postDrain: a[rkev1.PostDrainAnnotation],
		uncordon: a[rkev1.UncordonAnnotation], done: a[rkev1.DrainDoneAnnotation], problem: a[rkev1.DrainErrorAnnotation], waiting: a[rkev1.DrainWaitingAnnotation],
		cordoned: a[rkev1.DrainCordonedAnnotation] == "true",
	}
	// What cannot be read was not written by this controller: the time starts anew.
	if json.Unmarshal([]byte(a[rkev1.DrainBeganAnnotation]), &n.began) != nil || n.began.Options != n.asked {
		n.began = beginning{}
	}
	return n
}

// writeTo puts the notes into the annotations of a plan Secret. What was asked is not this controller's to write.
func (n notes) writeTo(secret *corev1.Secret) {
	began := ""
	if raw, err := json.Marshal(n.began); err == nil && !n.began.At.IsZero() {
		began = string(raw)
	}
	cordoned := ""
	if n.cordoned {
		cordoned = "true"
	}
	for key, value := range map[string]string{
		rkev1.PreDrainAnnotation: n.preDrain, rkev1.PostDrainAnnotation: n.postDrain, rkev1.DrainDoneAnnotation: n.done,
		rkev1.DrainErrorAnnotation: n.problem, rkev1.DrainWaitingAnnotation: n.waiting, rkev1.DrainBeganAnnotation: began, rkev1.DrainCordonedAnnotation: cordoned,
	} {
		if value == "" {
			delete(secret.Annotations, key)
			continue
		}
		secret.Annotations[key] = value
	}
}

// forget takes away everything that a drain leaves in the annotations, the answers of its hooks among it.
func forget(secret *corev1.Secret, options rkev1.DrainOptions) {
	keys := []string{
		rkev1.DrainOptionsAnnotation, rkev1.PreDrainAnnotation, rkev1.PostDrainAnnotation, rkev1.DrainDoneAnnotation,
		rkev1.DrainErrorAnnotation, rkev1.DrainWaitingAnnotation, rkev1.DrainBeganAnnotation, rkev1.DrainCordonedAnnotation, rkev1.UncordonAnnotation,
	}
	for _, hook := range append(options.PreDrainHooks, options.PostDrainHooks...) {
		keys = append(keys, hook.Annotation)
	}
	for _, key := range keys {
		delete(secret.Annotations, key)
	}
}

// decodeOptions reads what was asked for.
func decodeOptions(asked string) (rkev1.DrainOptions, error) {
	var options rkev1.DrainOptions
	if err := json.Unmarshal([]byte(asked), &options); err != nil {
		return options, fmt.Errorf("annotation %s holds no drain options: %w", rkev1.DrainOptionsAnnotation, err)
	}
	return options, nil
}

// timeout is how long a drain with these options may take.
func timeout(options rkev1.DrainOptions) time.Duration {
	if options.Timeout <= 0 {
		return defaultTimeout
	}
	return time.Duration(options.Timeout) * time.Second
}

// unanswered are the hooks that have not let the drain go on.
func unanswered(secret *corev1.Secret, hooks []rkev1.DrainHook, asked string) (waiting []string) {
	for _, hook := range hooks {
		if hook.Annotation != "" && secret.Annotations[hook.Annotation] != asked {
			waiting = append(waiting, hook.Annotation)
		}
	}
	return waiting
}
