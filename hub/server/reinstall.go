package server

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/drover-dev/drover/hub/api/admission"
	"github.com/drover-dev/drover/hub/server/capi"
)

const (
	// maxReinstallPause is the longest pause before the hub installs something again after an error, or that is deleted again and again.
	maxReinstallPause = 5 * time.Minute
	// reinstallGap is after how long another deletion counts as the first.
	reinstallGap = time.Minute
)

// reinstall installs again what the API server checks requests with, as soon as somebody has deleted it. Otherwise nothing would check them
// until a hub starts, and nothing would say so. It runs in the replica that leads: of replicas of two versions, one decides.
type reinstall struct {
	informers cache.Informers
	// what it is, for messages.
	what string
	// kinds and names are those of the objects, of which nothing but metadata is read.
	kinds []*metav1.PartialObjectMetadata
	names []string
	// install installs all of them.
	install func(context.Context) error
}

// addReinstalls adds what keeps policies and the registration of webhooks installed.
func addReinstalls(mgr ctrl.Manager, direct client.Client, found *prepared, opts Options) error {
	names, err := admission.Names()
	if err != nil {
		return err
	}
	runnables := []*reinstall{{
		informers: mgr.GetCache(), what: "admission policies", names: names,
		kinds:   metadataOf("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
		install: func(ctx context.Context) error { return admission.Install(ctx, direct) },
	}, {
		informers: mgr.GetCache(), what: "webhook configurations", names: []string{capi.RegistrationName},
		kinds: metadataOf("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
		install: func(ctx context.Context) error {
			// With the UID of a ClusterRole that was deleted and created again since, the garbage collector would delete them at once. Without the
			// ClusterRole, the hub is being uninstalled.
			by, err := owners(ctx, direct, opts.OwnerClusterRole)
			if err != nil {
				return err
			}
			return capi.RegisterWebhooks(ctx, direct, found.webhooks, by...)
		},
	}}
	if opts.ExternalCAPI {
		runnables = runnables[:1]
		// A replica that ran Cluster API may have led, and have registered its webhooks, until now.
		unregister := manager.RunnableFunc(func(ctx context.Context) error { return capi.UnregisterWebhooks(ctx, direct) })
		if err := mgr.Add(unregister); err != nil {
			return fmt.Errorf("adding the removal of webhooks: %w", err)
		}
	}
	for _, r := range runnables {
		if err := mgr.Add(r); err != nil {
			return fmt.Errorf("adding the watch of %s: %w", r.what, err)
		}
	}
	return nil
}

// Start implements manager.Runnable.
func (r *reinstall) Start(ctx context.Context) error {
	deleted := make(chan struct{}, 1)
	for _, kind := range r.kinds {
		informer, err := r.informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %s: %w", r.what, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
			if name, err := toolscache.DeletionHandlingObjectToName(object); err != nil || !slices.Contains(r.names, name.Name) {
				return
			}
			select {
			case deleted <- struct{}{}:
			default:
			}
		}})
		if err != nil {
			return fmt.Errorf("watching %s: %w", r.what, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }()
	}
	log := ctrl.LoggerFrom(ctx).WithValues("what", r.what)
	pause := newReinstallPause()
	var again <-chan time.Time
	var installed time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-deleted:
			if again != nil {
				continue
			}
			if time.Since(installed) < reinstallGap {
				// Another program wants it gone: the two must not keep the API server busy.
				again = time.After(pause.Step())
				continue
			}
			pause = newReinstallPause()
		case <-again:
		}
		again = nil
		switch err := r.install(ctx); {
		case err == nil:
			installed = time.Now()
			log.Info("Installed again what somebody has deleted")
		case ctx.Err() == nil:
			log.Error(err, "Installing again what somebody has deleted failed; retrying")
			again = time.After(pause.Step())
		}
	}
}

// metadataOf returns objects of kinds that the API server checks requests with.
func metadataOf(kinds ...string) (objects []*metav1.PartialObjectMetadata) {
	for _, kind := range kinds {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
		objects = append(objects, object)
	}
	return objects
}

func newReinstallPause() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Cap: maxReinstallPause, Steps: math.MaxInt32}
}
