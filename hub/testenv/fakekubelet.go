package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/retry"

	"github.com/drover-dev/drover/hub/nodedriver/sandbox"
)

// podFinalizer keeps a Job that is being deleted until its process has ended, as its Pod would.
const podFinalizer = "drover.test/pod"

var errKilled = errors.New("killed")

// FakeKubelet runs the containers of Jobs on an API server without nodes: each in a directory tree of its own, without rights, with the
// volumes, the arguments and the token of its ServiceAccount. The program of its image is the test's own.
type FakeKubelet struct {
	env    *Env
	client *kubernetes.Clientset
	// authority is the certificate of the API server's authority.
	authority []byte

	mutex   sync.Mutex
	running map[types.UID]context.CancelCauseFunc
	output  bytes.Buffer
	jobs    []batchv1.Job
}

// StartKubelet starts a FakeKubelet, which runs until ctx ends.
func (e *Env) StartKubelet(ctx context.Context) (*FakeKubelet, error) {
	client, err := kubernetes.NewForConfig(e.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client for Jobs: %w", err)
	}
	config := rest.CopyConfig(e.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("reading the authority of the API server: %w", err)
	}
	k := &FakeKubelet{env: e, client: client, authority: config.CAData, running: map[types.UID]context.CancelCauseFunc{}}
	jobs := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.BatchV1().Jobs("").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.BatchV1().Jobs("").Watch(ctx, o)
		},
	}, client)
	go func() {
		_, _ = watchtools.UntilWithSync(ctx, jobs, &batchv1.Job{}, nil, func(event watch.Event) (bool, error) {
			if job, ok := event.Object.(*batchv1.Job); ok && event.Type != watch.Deleted {
				k.handle(ctx, job.DeepCopy())
			}
			return false, nil
		})
	}()
	return k, nil
}

// Output is all that containers have written so far.
func (k *FakeKubelet) Output() string {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.output.String()
}

// Jobs are those that were started so far.
func (k *FakeKubelet) Jobs() []batchv1.Job {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return append([]batchv1.Job{}, k.jobs...)
}

// Kill ends the container of a Job as the kernel does where memory is short: it can write nothing more.
func (k *FakeKubelet) Kill(job types.UID) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if kill := k.running[job]; kill != nil {
		kill(errKilled)
	}
}

func (k *FakeKubelet) handle(ctx context.Context, job *batchv1.Job) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	cancel, known := k.running[job.UID]
	switch {
	case job.DeletionTimestamp != nil && known:
		cancel(nil)
	case job.DeletionTimestamp == nil && !known:
		ctx, cancel := context.WithCancelCause(ctx)
		k.running[job.UID], k.jobs = cancel, append(k.jobs, *job)
		go func() {
			defer cancel(nil)
			k.play(ctx, job)
		}()
	}
}

// play runs the container of a Job and writes the condition that the Job ends with.
func (k *FakeKubelet) play(ctx context.Context, job *batchv1.Job) {
	err := k.change(ctx, job, false, func(j *batchv1.Job) { j.Finalizers = append(j.Finalizers, podFinalizer) })
	if err == nil {
		err = k.run(ctx, job)
	}
	now := metav1.Now()
	failed := batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded",
		LastTransitionTime: now}
	if err != nil {
		failed.Message = err.Error()
	}
	// The end counts even if the Job was deleted meanwhile.
	ctx = context.WithoutCancel(ctx)
	_ = k.change(ctx, job, true, func(j *batchv1.Job) {
		j.Status.StartTime = &now
		if err != nil {
			target := failed
			j.Status.Failed = 1
			target.Type = batchv1.JobFailureTarget
			j.Status.Conditions = append(j.Status.Conditions, target, failed)
			return
		}
		j.Status.Succeeded, j.Status.CompletionTime = 1, &now
		met, complete := failed, failed
		met.Type, met.Reason = batchv1.JobSuccessCriteriaMet, "CompletionsReached"
		complete.Type, complete.Reason = batchv1.JobComplete, "CompletionsReached"
		j.Status.Conditions = append(j.Status.Conditions, met, complete)
	})
	_ = k.change(ctx, job, false, func(j *batchv1.Job) {
		j.Finalizers = without(j.Finalizers, podFinalizer)
	})
}

func without(list []string, item string) []string {
	var out []string
	for _, s := range list {
		if s != item {
			out = append(out, s)
		}
	}
	return out
}

func (k *FakeKubelet) change(ctx context.Context, job *batchv1.Job, status bool, set func(*batchv1.Job)) error {
	jobs := k.client.BatchV1().Jobs(job.Namespace)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := jobs.Get(ctx, job.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		set(now)
		if status {
			_, err = jobs.UpdateStatus(ctx, now, metav1.UpdateOptions{})
		} else {
			_, err = jobs.Update(ctx, now, metav1.UpdateOptions{})
		}
		return err
	})
}

// run runs the container. Its directory tree is a sandbox, in which the container's program starts others without one.
func (k *FakeKubelet) run(ctx context.Context, job *batchv1.Job) (err error) {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	box, err := sandbox.New(filepath.Join(k.env.Dir, "pods"), program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	pod := job.Spec.Template.Spec
	if err := k.mount(ctx, box, job.Namespace, &pod); err != nil {
		return err
	}
	api, err := url.Parse(k.env.Config.Host)
	if err != nil {
		return err
	}
	address := []string{"KUBERNETES_SERVICE_HOST=" + api.Hostname(), "KUBERNETES_SERVICE_PORT=" + api.Port()}
	cmd := box.Command(address, pod.Containers[0].Args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := sandbox.Start(cmd); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		signal := syscall.SIGTERM
		if errors.Is(context.Cause(ctx), errKilled) {
			signal = syscall.SIGKILL
		}
		_ = cmd.Process.Signal(signal) // it may have ended
	})()
	err = cmd.Wait()
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.output.Write(output.Bytes())
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(output.String()))
	}
	return nil
}

// mount writes what the volumes have, the token of the ServiceAccount, and the programs of node drivers of the image.
func (k *FakeKubelet) mount(ctx context.Context, box *sandbox.Sandbox, namespace string, pod *corev1.PodSpec) error {
	files := map[string][]byte{"/dev/null": nil}
	for _, m := range pod.Containers[0].VolumeMounts {
		for _, v := range pod.Volumes {
			if v.Name != m.Name || v.Secret == nil {
				continue
			}
			secret, err := k.client.CoreV1().Secrets(namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for key, value := range secret.Data {
				files[filepath.Join(m.MountPath, key)] = value
			}
		}
	}
	token, err := k.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, pod.ServiceAccountName, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	files[account+"token"], files[account+"ca.crt"] = []byte(token.Status.Token), k.authority
	for path, content := range files {
		if err := put(box, path, content, 0o600); err != nil {
			return err
		}
	}
	dir := filepath.Join(k.env.Dir, NodeDrivers)
	drivers, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, driver := range drivers {
		if !driver.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, driver.Name())
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := put(box, path, content, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// put writes a file of the container's user into directories that he may read.
func put(box *sandbox.Sandbox, path string, content []byte, mode os.FileMode) error {
	if err := errors.Join(box.WriteFile(path, content), box.Root().Chmod(path[1:], mode)); err != nil {
		return err
	}
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if err := box.Root().Chmod(dir[1:], 0o755); err != nil {
			return err
		}
	}
	return nil
}
