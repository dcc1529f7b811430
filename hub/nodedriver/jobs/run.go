package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
)

const (
	// downloadDir is where the Pod of a Job keeps a program that it has downloaded.
	downloadDir = "/tmp/node-drivers"
	// writeTimeout is the time in which the result is written, for as long as the Kubernetes API may not answer, and writeInterval the pause
	// between attempts.
	writeTimeout  = 5 * time.Minute
	writeInterval = time.Second
)

// RunOptions say what a Pod has to do.
type RunOptions struct {
	// Order is the file with the order.
	Order string
	// Secrets are those of the namespace, Result is the name of the one for the result.
	Secrets typedcorev1.SecretInterface
	Result  string
	// ProgramDir has the programs of builtin drivers.
	ProgramDir string
	// Pod is the name of the Pod.
	Pod string
}

// Run carries out an order in the Pod of a Job, and writes the state of the machine and the result. The error is that of the operation,
// without secrets, or that of writing.
func Run(ctx context.Context, opts RunOptions) error {
	raw, err := os.ReadFile(opts.Order)
	if err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}
	o, err := decodeOrder(raw)
	if err != nil {
		return err
	}
	for name, value := range o.Proxy { // before the first request
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	w := &writer{opts}
	if err := w.begin(ctx); err != nil {
		return err
	}
	drivers := &nodedriver.Local{Programs: &programs.Store{Dir: downloadDir}, Runner: nodedriver.NewContained()}
	if opts.ProgramDir != "" && o.Source.Builtin && !programs.IsDownload(&o.Source) {
		drivers.Programs.Dir = opts.ProgramDir
	}
	result := &result{}
	switch o.Operation {
	case readFlags:
		err = result.readFlags(ctx, drivers, o)
	case create, remove:
		err = result.operate(ctx, drivers, o, w)
	default:
		err = fmt.Errorf("the order has the unknown operation %.100q", o.Operation)
	}
	result.setError(err)
	encoded, encodeErr := json.Marshal(result)
	if encodeErr != nil {
		return fmt.Errorf("encoding the result: %w", encodeErr)
	}
	if writeErr := w.writeLast(context.WithoutCancel(ctx), resultKey, encoded); writeErr != nil {
		return writeErr
	}
	return err
}

func (r *result) readFlags(ctx context.Context, drivers *nodedriver.Local, o *order) error {
	ctx, cancel := context.WithTimeout(ctx, flagsTimeout)
	defer cancel()
	flags, sum, err := drivers.Flags(ctx, o.Driver, &o.Source)
	if err != nil {
		return err
	}
	r.Checksum = sum
	return r.setFlags(flags)
}

func (r *result) operate(ctx context.Context, drivers *nodedriver.Local, o *order, w *writer) error {
	m, err := o.machine()
	if err != nil {
		return err
	}
	m.Save = func(ctx context.Context, state *nodedriver.State) error {
		raw, err := state.Encode()
		if err != nil {
			return err
		}
		return w.write(ctx, stateKey, raw)
	}
	if o.Operation == remove {
		r.Log, err = drivers.Remove(ctx, m)
		return err
	}
	r.Addresses, r.Log, err = drivers.Create(ctx, m)
	return err
}

// writer writes the Secret of the result. Nobody else does.
type writer struct{ RunOptions }

// begin fails in a Pod that is not the first one of its Job.
func (w *writer) begin(ctx context.Context) error {
	return w.update(ctx, func(s *corev1.Secret) error {
		if pod := s.Data[startedKey]; len(pod) > 0 {
			return fmt.Errorf("Pod %s has begun this order before; the hub gives a new one", pod) //nolint:staticcheck // a kind
		}
		s.Data[startedKey] = []byte(w.Pod)
		return nil
	})
}

func (w *writer) write(ctx context.Context, key string, value []byte) error {
	return w.update(ctx, func(s *corev1.Secret) error {
		s.Data[key] = value
		return nil
	})
}

// writeLast is write for what nothing else knows: a machine whose result was not written would be removed, and made again. It writes again
// while a later attempt may succeed.
func (w *writer) writeLast(ctx context.Context, key string, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	for {
		err := w.write(ctx, key, value)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) ||
			apierrors.IsRequestEntityTooLargeError(err) {
			return err
		}
		select {
		case <-time.After(writeInterval):
		case <-ctx.Done():
			return err
		}
	}
}

func (w *writer) update(ctx context.Context, change func(*corev1.Secret) error) error {
	secret, err := w.Secrets.Get(ctx, w.Result, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", w.Result, err)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	if err := change(secret); err != nil {
		return err
	}
	if _, err := w.Secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing Secret %s: %w", w.Result, err)
	}
	return nil
}
