package plans

import (
	"strconv"
	"time"
)

// Unlimited is the number of failures that stands for no limit.
const Unlimited = -1

// DefaultProbePeriod is how often probes run where the Secret does not say.
const DefaultProbePeriod = 5 * time.Second

// MinProbePeriod is how often probes run at most: a period that is shorter would keep a processor of the machine busy.
const MinProbePeriod = 100 * time.Millisecond

// agentKeys are in the order of the documentation.
var agentKeys = []string{
	KeyAppliedChecksum, KeyFailedChecksum, KeyFailureCount, KeySuccessCount, KeyLastApplyTime, KeyAppliedOutput, KeyFailedOutput,
	KeyAppliedPeriodicOutput, KeyProbeStatuses, KeyPlanState, KeyPlanRevision, KeyPlanCheckpoint, KeyPlanProgress, KeyAgentStatus,
}

// AgentKeys returns the keys of the plan Secret's data that an agent may write. All others are the hub's.
func AgentKeys() []string {
	return append([]string(nil), agentKeys...)
}

// Delivery is what the hub wrote for the agent.
type Delivery struct {
	// Plan is the plan's raw bytes; empty when none was delivered yet.
	Plan []byte
	// MaxFailures is how often the agent may try; Unlimited where the Secret does not say. With plan-state, 0 and Unlimited mean the
	// agent's default.
	MaxFailures int
	// ProbePeriod is the pause between two checks of a probe.
	ProbePeriod time.Duration
	// Signature is the raw value of KeyPlanSignature; empty for a plan that nobody signed.
	Signature []byte
}

// Checksum of the delivered plan, or empty when there is none.
func (d Delivery) Checksum() string {
	if len(d.Plan) == 0 {
		return ""
	}
	return Checksum(d.Plan)
}

// DecodeDelivery reads the hub's keys. It never fails: a limit that cannot be parsed is Unlimited, a period that cannot be parsed is
// DefaultProbePeriod, as in legacy agents, and one that is too short MinProbePeriod.
func DecodeDelivery(data SecretData) Delivery {
	d := Delivery{Plan: data[KeyPlan], MaxFailures: Unlimited, ProbePeriod: DefaultProbePeriod,
		Signature: data[KeyPlanSignature]}
	if n, err := strconv.Atoi(string(data[KeyMaxFailures])); err == nil && n >= 0 {
		d.MaxFailures = n
	}
	if period, err := time.ParseDuration(string(data[KeyProbePeriodSeconds]) + "s"); err == nil && period > 0 {
		d.ProbePeriod = max(period, MinProbePeriod)
	}
	return d
}

// FailureThreshold is after how many failures the hub treats a plan as failed: 1 where the Secret does not say, Unlimited for never.
func FailureThreshold(data SecretData) int {
	if n, err := strconv.Atoi(string(data[KeyFailureThreshold])); err == nil && n != 0 {
		return max(n, Unlimited)
	}
	return 1
}

// Deliver puts a new plan, as raw bytes, into data and sets it pending. A limit of 0 removes the key, which means the default of agent
// and hub. The probe statuses of the previous plan are removed.
func Deliver(data SecretData, plan []byte, maxFailures, failureThreshold int) {
	data[KeyPlan] = plan
	data[KeyPlanState] = []byte(StatePending)
	setLimit(data, KeyMaxFailures, maxFailures)
	setLimit(data, KeyFailureThreshold, failureThreshold)
	delete(data, KeyProbeStatuses)
}

func setLimit(data SecretData, key string, limit int) {
	if limit == 0 {
		delete(data, key)
		return
	}
	data[key] = []byte(strconv.Itoa(limit))
}
