#!/bin/sh
# Installs bubblewrap, the sandbox that graded programs run in, where that is allowed; elsewhere it says so.
# Never fails: without it programs are not run, and the tests that need it are skipped.

if command -v bwrap >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing bubblewrap ..."
    if apt-get install -y -qq bubblewrap >/dev/null 2>&1 ||
        { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq bubblewrap >/dev/null 2>&1; }; then
        exit 0
    fi
fi
echo "bubblewrap is not here, so programs will not be run (tests of that are skipped): apt-get install bubblewrap"
exit 0
