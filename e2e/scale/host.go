package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// describeMachine says on what was measured.
func describeMachine() (string, error) {
	model, err := firstValue("/proc/cpuinfo", "model name")
	if err != nil {
		return "", err
	}
	memory, err := firstValue("/proc/meminfo", "MemTotal")
	if err != nil {
		return "", err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d processors (%s) with %s of memory; the load average of the last 15 minutes was %s at the end",
		runtime.NumCPU(), model, memory, strings.Fields(string(load))[2]), nil
}

// firstValue returns the value of a key in a file of lines "key: value"; "unknown" if there is none.
func firstValue(path, key string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value), nil
		}
	}
	return "unknown", lines.Err()
}
