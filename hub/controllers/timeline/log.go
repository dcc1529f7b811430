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
	"github.com/drover-dev/drover/hub/plan/reasons"
	hubapierrors "github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// The ConfigMap with the provisioning log, in the namespace of the management Cluster, as existing user interfaces read it.
const (
	LogName = "provisioning-log"
	// LogKey holds the lines, LogLastKey the last message.
	LogKey     = "log"
	LogLastKey = "last"
)

const (
	// maxLogBytes bounds the log; the oldest lines are dropped first.
	maxLogBytes = 10000
	// logDone is logged when nothing is being waited for.
	logDone = "provisioning done"
)

// writeLog adds a line to the provisioning log if the message of the cluster has changed.
func (r *Reconciler) writeLog(ctx context.Context, s *scope, m *clusterState, now time.Time) error {
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
		// The namespace may not exist yet, or be deleted already.
		if err != nil && !hubapierrors.IsEnding(err) && !hubapierrors.IsGone(err) {
			return fmt.Errorf("writing the provisioning log: %w", err)
		}
		if err != nil {
			return nil
		}
	}
	m.logged = &message
	return nil
}

// logMessage is the message of the condition Provisioned until that is True, and then of Updated.
func (s *scope) logMessage() (level, message string) {
	c := conditions.Get(s.provisioning, provisioningv1.ProvisionedCondition)
	// Provisioned is never Unknown; the status of Ready says whether a user has to act.
	severity := conditions.Get(s.provisioning, provisioningv1.ReadyCondition)
	if c != nil && c.Status == metav1.ConditionTrue {
		c = conditions.Get(s.provisioning, provisioningv1.UpdatedCondition)
		severity = c
	}
	switch {
	case c == nil:
		return "", ""
	case c.Status == metav1.ConditionTrue:
		return "INFO", logDone
	}
	if reasons.Get(c.Reason).Sensitive && len(s.failedMachines()) == 0 {
		// The cache has not seen the failed Machine yet; that brings another reconcile.
		return "", ""
	}
	message = s.publicMessage(c.Reason, c.Message)
	if ignoreBenign(failedOrRunning(severity)).Outcome == timelines.OutcomeFailed {
		return "ERROR", message
	}
	return "INFO", message
}

// appendLine adds a line and drops the oldest ones until maxLogBytes is kept.
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
