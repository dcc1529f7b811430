package timeline

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/message"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/rollout"
)

// The ConfigMap with the provisioning log, in the namespace of the management Cluster. Existing interfaces show it.
const (
	LogName    = "provisioning-log"
	LogKey     = "log"
	LogLastKey = "last"
)

const (
	// maxLogBytes is what the log may hold; its oldest lines go first.
	maxLogBytes = 10000
	// logDone is logged when nothing is waited for any more.
	logDone = "provisioning done"
)

// log adds a line to the provisioning log when the message of the cluster has changed.
func (r *Reconciler) log(ctx context.Context, s *scope, m *memory, now time.Time) error {
	if s.provisioning == nil || !s.provisioning.DeletionTimestamp.IsZero() {
		return nil
	}
	namespace := s.provisioning.Annotations[rkev1.ManagementClusterNameAnnotation]
	level, message := s.logMessage()
	if namespace == "" || message == "" || m.logged != nil && *m.logged == message {
		return nil
	}
	_, refusal, err := ownership.ManagementCluster(ctx, r.Client, client.ObjectKeyFromObject(s.provisioning), namespace)
	if err != nil || refusal != nil {
		return err
	}
	configMap := &corev1.ConfigMap{}
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: LogName}, configMap)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the provisioning log: %w", err)
	}
	missing := apierrors.IsNotFound(err)
	if last := configMap.Data[LogLastKey]; last != message {
		line := fmt.Sprintf("%s [%-5s] %s\n", now.UTC().Format(time.RFC3339), level, strings.Join(strings.Fields(message), " "))
		configMap.Data = map[string]string{LogKey: appendLine(configMap.Data[LogKey], line), LogLastKey: message}
		if missing {
			configMap.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: LogName}
			err = r.Client.Create(ctx, configMap, fieldOwner)
		} else {
			err = r.Client.Update(ctx, configMap, fieldOwner)
		}
		// The namespace may not be there yet, or not any more.
		if err != nil && !failure.IsEnding(err) && !failure.IsGone(err) {
			return fmt.Errorf("writing the provisioning log: %w", err)
		}
		if err != nil {
			return nil
		}
	}
	m.logged = &message
	return nil
}

// logMessage is what the log says at the moment: what the cluster waits for before it is provisioned, and later what a change waits for.
func (s *scope) logMessage() (level, message string) {
	c := conditions.Get(s.provisioning, provisioningv1.ProvisionedCondition)
	// Provisioned is false as long as it is not true; Ready tells whether somebody has to act.
	trouble := conditions.Get(s.provisioning, provisioningv1.ReadyCondition)
	if c != nil && c.Status == metav1.ConditionTrue {
		c = conditions.Get(s.provisioning, provisioningv1.UpdatedCondition)
		trouble = c
	}
	switch {
	case c == nil:
		return "", ""
	case c.Status == metav1.ConditionTrue:
		return "INFO", logDone
	}
	if c.Reason == rollout.ReasonPlanFailed && len(s.failedMachines()) == 0 {
		// The cache does not have the Machine yet as the cluster has seen it; that brings another pass.
		return "", ""
	}
	message = s.message(c.Reason, c.Message)
	if calmed(stuck(trouble, "")).outcome == OutcomeFailed {
		return "ERROR", message
	}
	return "INFO", message
}

// appendLine adds a line and drops as many of the oldest as are needed to make room for it.
func appendLine(log, line string) string {
	log += message.Bound(line, maxLogBytes)
	for len(log) > maxLogBytes {
		_, rest, found := strings.Cut(log, "\n")
		if !found {
			return rest
		}
		log = rest
	}
	return log
}
