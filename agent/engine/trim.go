package engine

import (
	"fmt"

	"github.com/drover-dev/drover/plans"
)

// What all outputs of one kind may take of the Secret's one mebibyte, which holds the plan twice besides.
const (
	outputsBudget  = 256 << 10
	periodicBudget = 128 << 10
)

// trimOutputs shortens outputs so that together they stay within the budget. Each step of trimming makes that eight times smaller. The
// result is never nil and may be changed.
func trimOutputs(outputs map[string][]byte, trimming int) map[string][]byte {
	share := (outputsBudget >> (3 * trimming)) / max(len(outputs), 1)
	trimmed := make(map[string][]byte, len(outputs)+1)
	for name, output := range outputs {
		trimmed[name] = trim(output, share)
	}
	return trimmed
}

func trimPeriodic(outputs map[string]plans.PeriodicOutput, trimming int) map[string]plans.PeriodicOutput {
	share := (periodicBudget >> (3 * trimming)) / max(2*len(outputs), 1)
	trimmed := make(map[string]plans.PeriodicOutput, len(outputs))
	for name, output := range outputs {
		output.Stdout, output.Stderr = trim(output.Stdout, share), trim(output.Stderr, share)
		trimmed[name] = output
	}
	return trimmed
}

// trim keeps a quarter of the share from the beginning of an output and the rest from its end.
func trim(output []byte, share int) []byte {
	if len(output) <= share {
		return output
	}
	head, tail := output[:share/4], output[len(output)-share*3/4:]
	trimmed := append([]byte(nil), head...)
	trimmed = fmt.Appendf(trimmed, "\n[%d bytes left out]\n", len(output)-len(head)-len(tail))
	return append(trimmed, tail...)
}
