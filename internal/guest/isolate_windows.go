package guest

import "os/exec"

func (s Spec) isolate(*exec.Cmd, bool) {}
