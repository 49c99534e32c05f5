# DP_OPTIONAL(option, name, VARIABLE, pkg-config module)
# --with-OPTION=yes|no|guess: a hard error only when asked for by name. Sets have_OPTION, VARIABLE_CFLAGS, _LIBS, _VERSION.
AC_DEFUN([DP_OPTIONAL],[
  AC_ARG_WITH([$1],[AS_HELP_STRING([--with-$1],[use $2 (default: when found)])],[],[with_$1=guess])
  have_$1=no
  AS_IF([test "x$with_$1" != xno],[
    PKG_CHECK_MODULES([$3],[$4],[have_$1=yes; $3_VERSION=`$PKG_CONFIG --modversion $4`],[
      AS_IF([test "x$with_$1" = xyes],[AC_MSG_ERROR([$2 was asked for but not found])])
    ])
  ])
  AS_IF([test "x$have_$1" = xyes],[AC_DEFINE([HAVE_$3],[1],[$2 is present])])
  AM_CONDITIONAL([HAVE_$3],[test "x$have_$1" = xyes])
])
