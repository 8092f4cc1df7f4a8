#!/bin/sh
exec {{.Adapter}} {{.Runtime}} "$@"
